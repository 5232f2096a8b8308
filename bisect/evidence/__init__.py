"""What the machine says: stacks, system calls, descriptors, sockets, locks, and what moved.

Everything here is called by the monitor, which must never hang. So nothing touches what an open
descriptor leads to, whatever may wait for a process in the kernel is done beside (base/deadline.py)
with a time limit, and what could not be had is said as a sentence. Nothing here sends a signal
to a process of the job. Linux only: elsewhere readings are None or empty.
"""
