"""What the arguments of a system call mean: which descriptors, which path, until when."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from ..facts import Descriptor, Syscall
from . import futexes, syscalls

MOST_DESCRIPTORS = 64
_CLOCK_REALTIME_FLAG = 256
_ABSOLUTE = 1  # TIMER_ABSTIME


class Reads(Protocol):
    """Reads memory: `memory.Memory`, or what a test puts in its place."""

    def read(self, address: int, size: int) -> bytes | None: ...
    def string(self, address: int) -> str | None: ...
    def timespec(self, address: int, fraction: float = 1e-9) -> float | None: ...


def numbers(call: Syscall, pid: int) -> tuple[int, ...]:
    """Return the descriptor numbers that can be told without reading memory."""
    found = [_int(call.args[i]) for i in syscalls.DESCRIPTOR.get(call.name, ()) if i < 6]
    if call.name.startswith("epoll_"):
        found += watched(pid, found[0])
    return tuple(fd for fd in found if fd >= 0)


def watched(pid: int, epoll: int) -> list[int]:
    """Return the descriptors that an epoll descriptor waits for."""
    try:
        with open(f"/proc/{pid}/fdinfo/{epoll}", errors="replace") as file:
            return parse_watched(file.read())
    except OSError:
        return []


def parse_watched(text: str) -> list[int]:
    """Return the descriptors in the text of an epoll descriptor's fdinfo."""
    lines = [line.split() for line in text.splitlines() if line.startswith("tfd:")]
    found = [int(line[1]) for line in lines if len(line) > 1 and line[1].isdecimal()]
    return found[:MOST_DESCRIPTORS]


def decode(
    call: Syscall,
    memory: Reads,
    describe: Callable[[int], Descriptor],
    pid: int,
) -> Syscall:
    """Return the call with descriptors, path and time limit, as far as they can be had."""
    fds = list(numbers(call, pid))
    if call.name in ("poll", "ppoll"):
        fds = _polled(call, memory)
    elif call.name in ("select", "pselect6"):
        fds = _selected(call, memory)
    where = syscalls.PATH.get(call.name)
    path = memory.string(call.args[where]) if where is not None else None
    if call.name == "connect":
        path = _unix_path(call, memory)
    return replace(
        call,
        timeout=_timeout(call, memory),
        path=path,
        descriptors=tuple(describe(fd) for fd in dict.fromkeys(fds)),
        futex=futexes.decode(call, memory, pid),
    )


def _polled(call: Syscall, memory: Reads) -> list[int]:
    count = min(call.args[1], MOST_DESCRIPTORS)
    data = memory.read(call.args[0], count * 8) or b""
    whole = data[: len(data) // 8 * 8]
    return [fd for fd, _, _ in struct.iter_unpack("=ihh", whole) if fd >= 0]


def _selected(call: Syscall, memory: Reads) -> list[int]:
    highest = min(_int(call.args[0]), 1024)
    fds: list[int] = []
    for address in call.args[1:4]:
        data = memory.read(address, (highest + 7) // 8) if address and highest > 0 else None
        bits = int.from_bytes(data or b"", "little")
        fds += [fd for fd in range(highest) if bits >> fd & 1]
    return fds[:MOST_DESCRIPTORS]


def _unix_path(call: Syscall, memory: Reads) -> str | None:
    data = memory.read(call.args[1], min(call.args[2], 110)) or b""
    if len(data) < 3 or struct.unpack_from("=H", data)[0] != socket.AF_UNIX:
        return None
    abstract = data[2] == 0
    name = data[3:] if abstract else data[2:].split(b"\0")[0]
    return ("@" if abstract else "") + os.fsdecode(name)


def _timeout(call: Syscall, memory: Reads) -> float | None:
    if (at := syscalls.MILLISECONDS.get(call.name)) is not None:
        limit = _int(call.args[at])
        return limit / 1000 if limit >= 0 else None
    if call.name == "clock_nanosleep":
        seconds = memory.timespec(call.args[2])
        clock = _int(call.args[0])
        return _left(seconds, clock) if call.args[1] & _ABSOLUTE else seconds
    if call.name == "select":
        return memory.timespec(call.args[4], 1e-6)
    if call.name == "futex":
        return _futex_timeout(call, memory)
    if (at := syscalls.TIMESPEC.get(call.name)) is not None:
        return memory.timespec(call.args[at])
    return None


def _futex_timeout(call: Syscall, memory: Reads) -> float | None:
    operation = futexes.operation(call)
    if operation not in futexes.WAITS:
        return None
    seconds = memory.timespec(call.args[3])
    if operation == futexes.WAIT:
        return seconds
    real = operation == futexes.LOCK_PI or call.args[1] & _CLOCK_REALTIME_FLAG
    return _left(seconds, time.CLOCK_REALTIME if real else time.CLOCK_MONOTONIC)


def _left(until: float | None, clock: int) -> float | None:
    """Return what is left until a moment on a clock."""
    if until is None or clock not in (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC):
        return None
    return max(0.0, until - time.clock_gettime(clock))


def _int(value: int) -> int:
    """Return the C int in a register."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value
