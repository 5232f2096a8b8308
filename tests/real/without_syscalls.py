"""Run a command for which the kernel refuses some system calls, as containers and old kernels do.

Usage: python without_syscalls.py [--errno NAME] CALL[,CALL...] COMMAND...

CALL is a name of NUMBERS (`pidfd_open`, `close_range`); the refusal is ENOSYS, as of a kernel that
does not have the call, or what --errno names (EPERM, as of Docker's seccomp profile; EAGAIN of
clone and clone3, as where no process and no thread may be started). It holds for all that the
command starts. Ends with 125 if the filter cannot be set.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

# Their numbers on x86_64 and on aarch64 (asm/unistd_64.h, asm-generic/unistd.h).
NUMBERS = {
    "clone": (56, 220),
    "clone3": (435, 435),
    "close_range": (436, 436),
    "flock": (73, 32),
    "inotify_init1": (294, 26),
    "memfd_create": (319, 279),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "process_vm_readv": (310, 270),
    "ptrace": (101, 117),
    "statx": (332, 291),
}
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2  # prctl(2)
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000  # SECCOMP_RET_*
_RESULTS = {"x86_64": 0, "aarch64": 1}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def refuse(calls: list[str], number: int) -> None:
    """Refuse `calls` from now on, with errno `number`. Raises OSError or KeyError."""
    column = _RESULTS[platform.machine()]
    steps = [struct.pack("HBBI", _LOAD, 0, 0, 0)]  # seccomp_data.nr
    for call in calls:
        steps.append(struct.pack("HBBI", _JUMP_IF_EQUAL, 0, 1, NUMBERS[call][column]))
        steps.append(struct.pack("HBBI", _RETURN, 0, 0, _ERRNO | number))
    steps.append(struct.pack("HBBI", _RETURN, 0, 0, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(steps))
    program = _Program(len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _check(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0))


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main(words: list[str]) -> int:
    """Refuse what `words` name, and become the command."""
    number = errno.ENOSYS
    if words[:1] == ["--errno"]:
        number, words = getattr(errno, words[1]), words[2:]
    if len(words) < 2:
        print(__doc__, file=sys.stderr)
        return 125
    try:
        refuse(words[0].split(","), number)
    except (OSError, KeyError) as error:
        print(f"without_syscalls.py: no filter: {error!r}", file=sys.stderr)
        return 125
    os.execvp(words[1], words[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
