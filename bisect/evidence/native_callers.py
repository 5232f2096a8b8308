"""Whose code made the system call that a thread is in, read off its stack.

A look at native frames pauses a process, and a pause would end its recv(): what waits for a server
or a peer is never seen so. What the kernel tells of a thread in a system call is its stack pointer
(/proc/PID/syscall, proc_pid_syscall(5)), and above it are the return addresses of who called. The
first one that is neither of the C library nor of what reads for others is of the code that asked.
Further ones are not looked at: a buffer on the stack may hold what was called before.

Only of x86-64, where an address that is returned to stands behind a `call`
(Intel's manual, volume 2A, CALL: E8, or FF /2).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection

from ..base.lazy_dataclass import dataclass
from ..base.native_code import CODE_BELOW_A_CALLER
from ..base.proc import LARGEST
from .syscall_arguments import ReadsBytes

_DEPTH = 2048  # bytes of the stack: the frames of the C library, and of what encrypts
_WORD = struct.Struct("<Q")
_LONGEST_CALL = 7  # bytes
_INDIRECT_CALLS = (2, 3, 4, 6, 7)  # bytes of a call by a register or by memory
_MACHINE = "x86_64"


@dataclass(frozen=True)
class CodeMap:
    """A part of a process's memory that has the code of a file."""

    start: int
    end: int
    path: str


def read_code_maps(pid: int) -> tuple[CodeMap, ...]:
    """Return the code of a process, () where it cannot be read, or is of a machine that we cannot
    tell calls of. May block with the process.
    """
    if os.uname().machine != _MACHINE:
        return ()
    try:
        with open(f"/proc/{pid}/maps", errors="replace") as file:
            return parse_code_maps(file.read(LARGEST))
    except OSError:
        return ()


def parse_code_maps(maps: str) -> tuple[CodeMap, ...]:
    """Return the same of the text of a /proc/PID/maps (proc_pid_maps(5))."""
    found = []
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) < 6 or "x" not in fields[1] or not fields[5].startswith("/"):
            continue
        start, _, end = fields[0].partition("-")
        try:
            found.append(
                CodeMap(int(start, 16), int(end, 16), fields[5].removesuffix(" (deleted)"))
            )
        except ValueError:
            continue
    return tuple(found)


def find_caller(
    maps: Collection[CodeMap], memory: ReadsBytes, stack: int, passed_over: Collection[str] = ()
) -> str:
    """Return the path of the library, or of the program, whose code called the C library for the
    system call of a thread with this stack pointer; "" if that is not known. `passed_over`:
    libraries that hand calls on, such as are preloaded, by path or by name.
    """
    names = {one.rpartition("/")[2] for one in passed_over}
    data = memory.read(stack, _DEPTH) or b""
    for (address,) in _WORD.iter_unpack(data[: len(data) // _WORD.size * _WORD.size]):
        path = next((one.path for one in maps if one.start < address < one.end), "")
        if not path or CODE_BELOW_A_CALLER.search(path) or path.rpartition("/")[2] in names:
            continue
        if follows_a_call(memory.read(address - _LONGEST_CALL, _LONGEST_CALL) or b""):
            return path
    return ""


def follows_a_call(code: bytes) -> bool:
    """Return whether the 7 bytes of code before an address may end in a call."""
    if len(code) < _LONGEST_CALL:
        return False
    if code[-5] == 0xE8:
        return True
    return any(code[-n] == 0xFF and code[-n + 1] >> 3 & 7 == 2 for n in _INDIRECT_CALLS)
