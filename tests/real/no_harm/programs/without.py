"""Becomes the program argv[2:] without the system calls that argv[1] names, as a seccomp profile.

They fail with EPERM, as in containers, or with another error that is named first ("ENOSYS:name"),
as on older kernels. (seccomp(2), and the classic BPF of socket filters.)
"""

import ctypes
import errno
import os
import struct
import sys

NUMBERS = {"pidfd_open": 434, "close_range": 436, "ptrace": 101, "process_vm_readv": 310}
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000

error, _, names = sys.argv[1].rpartition(":")
names = names.split(",")
REFUSE |= getattr(errno, error or "EPERM")
rows = [(LOAD, 0, 0, 0)]
for left, name in enumerate(names):
    rows.append((EQUAL, len(names) - left, 0, NUMBERS[name]))
rows += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in rows))
program = struct.pack("HxxxxxxQ", len(rows), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
for words in ((38, 1, 0, 0, 0), (22, 2, ctypes.create_string_buffer(program))):
    if libc.prctl(*words):
        raise SystemExit(f"prctl: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[2], sys.argv[2:])
