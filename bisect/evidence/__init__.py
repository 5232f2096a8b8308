"""What the machine says: stacks, system calls, descriptors, sockets, locks, and what moved.

Monitors, the watcher, attach and doctor call this, and none of them may ever hang. So nothing
touches what an open descriptor leads to, whatever may wait for a process in the kernel is done
beside (base/deadline.py) with a time limit, and what could not be had is said as a sentence.
Nothing here sends a signal to a process of the job. Linux only: elsewhere readings are None or
empty.
"""
