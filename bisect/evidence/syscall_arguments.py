"""What the arguments of a system call mean: which descriptors, which path, until when; of futex(),
which word, and who has the mutex that the word belongs to.

The layout is that of glibc's pthread_mutex_t on 64-bit machines
(sysdeps/nptl/bits/struct_mutex.h): int lock, unsigned count, int owner, unsigned nusers, int
kind. The word is 0 for free, 1 for locked, 2 for locked and waited for; that of a mutex with
priority inheritance, or a robust one, is the owner's thread id with flags (man 2 futex). Other
locks (semaphores, conditions, Python's own) have no owner, and do not look like this.

A process in a pid namespace of its own knows its threads by other ids than we do, and py-spy and
pystack print those: there the main thread is 1, or whatever the process is in its namespace.
`renumber_threads` gives them ours.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from ..base.masking import mask_text
from ..base.proc import LARGEST, list_pids
from ..base.process_facts import Descriptor, Futex, Syscall, Thread
from . import kernel


def renumber_threads(pid: int, threads: tuple[Thread, ...]) -> tuple[Thread, ...]:
    """Return the threads of a process with their ids as /proc here has them, the main one first.
    They are as they were where the process has the ids that we see.
    """
    ids = read_outer_ids(pid)
    if not ids:
        return threads
    found = [replace(one, os_id=ids.get(one.os_id or 0, one.os_id)) for one in threads]
    return tuple(sorted(found, key=lambda one: one.os_id != pid))


def read_outer_ids(pid: int) -> Mapping[int, int]:
    """Return our id of each thread by the process's own, {} where they are the same."""
    if not read_inner_id(f"/proc/{pid}/status"):
        return {}
    try:
        tids = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return {}
    own = {tid: read_inner_id(f"/proc/{pid}/task/{tid}/status") for tid in tids}
    return {inside: tid for tid, inside in own.items() if inside}


def read_inner_id(path: str) -> int | None:
    """Return the id that a process or thread has in its own namespace, None where that is the one
    here. `path` is its status below /proc.
    """
    try:
        ids = read_namespace_ids(path)
    except OSError:
        return None
    return int(ids[-1]) if len(ids) > 1 else None


def read_namespace_ids(path: str) -> list[str]:
    """Return the ids of a process or thread in each pid namespace that it is in, ours first; `path`
    is its status below /proc. Raises OSError.
    """
    with open(path, errors="replace") as file:
        return next((line.split()[1:] for line in file if line.startswith("NSpid:")), [])


FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI, FUTEX_LOCK_PI2 = (
    0,
    6,
    9,
    11,
    13,
)  # linux/futex.h
FUTEX_WAITS = (FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI, FUTEX_LOCK_PI2)
_PRIVATE = 128  # FUTEX_PRIVATE_FLAG: nobody outside the process has this lock
_THREAD_ID = 0x3FFFFFFF  # FUTEX_TID_MASK
_SHARED_MEMORY = "/dev/shm/"
_SHARERS_LIMIT = 1.0  # seconds: the mappings of a process with torch take 2 ms to read
_MUTEX = struct.Struct("=IIIII")
_HIGHEST_PID = 1 << 22  # PID_MAX_LIMIT
_MOST_USERS = 4096
# Normal, recursive, error-checking or adaptive (0 to 3); robust, priority inheritance or
# protection, shared between processes, and the flags of lock elision.
_KINDS = 0x3 | 0x10 | 0x20 | 0x40 | 0x80 | 0x100 | 0x200


class ReadsBytes(Protocol):
    """Reads memory: `ProcessMemory`, or what a test puts in its place."""

    def read(self, address: int, size: int) -> bytes | None: ...


def futex_operation(call: Syscall) -> int:
    """Return the operation of a call of futex(), without its flags."""
    return call.args[1] & 127


def decode_futex(call: Syscall, memory: ReadsBytes, pid: int) -> Futex | None:
    """Return what a call of futex() waits on, None for one that does not wait."""
    if call.name != "futex" or futex_operation(call) not in FUTEX_WAITS:
        return None
    address = call.args[0]
    data = memory.read(address, _MUTEX.size) or b""
    if len(data) < 4:
        return Futex(address)
    value = int.from_bytes(data[:4], "little")
    owner = find_mutex_owner(data, futex_operation(call))
    if not call.args[1] & _PRIVATE:
        mapping = find_shared_file(_read_maps(pid), address)
        if not mapping:
            return Futex(address, value, owner)
        sharers = list_sharers(pid, mapping)
        return Futex(address, value, owner, file=mask_text(mapping[5]), sharers=sharers)
    if owner is None:
        return Futex(address, value)
    return Futex(address, value, owner, thread_exists(pid, owner))


def find_shared_file(maps: str, address: int) -> list[str]:
    """Return the fields of one line of `maps`, the text of a /proc/PID/maps (proc_pid_maps(5)):
    that of the file below /dev/shm that an address is mapped from. [] for none.
    """
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) < 6 or not fields[5].startswith(_SHARED_MEMORY):
            continue
        start, _, end = fields[0].partition("-")
        if int(start, 16) <= address < int(end, 16):
            return fields
    return []


def list_sharers(pid: int, mapping: Sequence[str]) -> tuple[int, ...] | None:
    """Return the other processes of the same session that have the same file below /dev/shm mapped
    as a process has by a line of its maps: who shares a semaphore has inherited it, or its name.
    None where there are too many to look at.
    """
    began, session = time.monotonic(), _find_session(pid)
    if session is None:
        return None
    device, inode = mapping[3:5]
    is_same = re.compile(rf"^\S+ \S+ \S+ {device} {inode}\s", re.MULTILINE)
    found = []
    for other in list_pids():
        if time.monotonic() > began + _SHARERS_LIMIT:
            return None
        is_near = other != pid and _find_session(other) == session
        if is_near and is_same.search(_read_maps(other)):
            found.append(other)
    return tuple(found)


def _find_session(pid: int) -> int | None:
    """Return the session of a process, None if it is gone. In a container it is 0 where whoever
    began the session is outside, as with `docker exec` (pid_namespaces(7)).
    """
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _read_maps(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/maps", errors="replace") as file:
            return file.read(LARGEST)
    except OSError:
        return ""


def find_mutex_owner(data: bytes, waits: int = FUTEX_WAIT) -> int | None:
    """Return the thread id of the owner of a locked mutex, None if these bytes are none."""
    if waits in (FUTEX_LOCK_PI, FUTEX_LOCK_PI2) and len(data) >= 4:
        return _plausible_thread_id(int.from_bytes(data[:4], "little") & _THREAD_ID)
    if len(data) < _MUTEX.size:
        return None
    word, _, owner, users, kind = _MUTEX.unpack_from(data)
    if word not in (1, 2) and word & _THREAD_ID != owner:
        return None
    if not 1 <= users <= _MOST_USERS or kind & ~_KINDS:
        return None
    return _plausible_thread_id(owner)


def _plausible_thread_id(tid: int) -> int | None:
    return tid if 1 < tid <= _HIGHEST_PID else None


def thread_exists(pid: int, tid: int) -> bool | None:
    """Return whether a process has this thread; None where its ids are not those that we see."""
    try:
        if os.path.exists(f"/proc/{pid}/task/{tid}"):
            return True
        ids = read_namespace_ids(f"/proc/{pid}/status")
    except OSError:
        return None
    return None if len(ids) > 1 else False  # more than one: a pid namespace of its own


MOST_DESCRIPTORS = 64
_CLOCK_REALTIME_FLAG = 256
_ABSOLUTE = 1  # TIMER_ABSTIME


class ReadsMemory(Protocol):
    """Reads memory: `ProcessMemory`, or what a test puts in its place."""

    def read(self, address: int, size: int) -> bytes | None: ...
    def string(self, address: int) -> str | None: ...
    def timespec(self, address: int, fraction: float = 1e-9) -> float | None: ...


def find_descriptor_numbers(call: Syscall, pid: int) -> tuple[int, ...]:
    """Return the descriptor numbers that can be told without reading memory."""
    found = [
        _signed_int(call.args[i]) for i in kernel.DESCRIPTOR_ARGUMENTS.get(call.name, ()) if i < 6
    ]
    if call.name.startswith("epoll_"):
        found += read_epoll_set(pid, found[0])
    return tuple(fd for fd in found if fd >= 0)


def read_epoll_set(pid: int, epoll: int) -> list[int]:
    """Return the descriptors that an epoll descriptor waits for."""
    try:
        with open(f"/proc/{pid}/fdinfo/{epoll}", errors="replace") as file:
            return parse_epoll_set(file.read(LARGEST))
    except OSError:
        return []


def parse_epoll_set(text: str) -> list[int]:
    """Return the descriptors in the text of an epoll descriptor's fdinfo."""
    lines = [line.split() for line in text.splitlines() if line.startswith("tfd:")]
    found = [int(line[1]) for line in lines if len(line) > 1 and line[1].isdecimal()]
    return found[:MOST_DESCRIPTORS]


def decode_syscall(
    call: Syscall,
    memory: ReadsMemory,
    describe: Callable[[int], Descriptor],
    pid: int,
) -> Syscall:
    """Return the call with descriptors, path and time limit, as far as they can be had."""
    fds = list(find_descriptor_numbers(call, pid))
    if call.name in ("poll", "ppoll"):
        fds = _decode_poll_set(call, memory)
    elif call.name in ("select", "pselect6"):
        fds = _decode_select_set(call, memory)
    where = kernel.PATH_ARGUMENT.get(call.name)
    path = memory.string(call.args[where]) if where is not None else None
    if call.name == "connect":
        path = _decode_unix_path(call, memory)
    return replace(
        call,
        timeout=_decode_timeout(call, memory),
        path=path,
        descriptors=tuple(describe(fd) for fd in dict.fromkeys(fds)),
        futex=decode_futex(call, memory, pid),
        signals=_decode_signal_set(call, memory),
    )


def _decode_signal_set(call: Syscall, memory: ReadsMemory) -> tuple[int, ...]:
    """Return the signals that a call of rt_sigtimedwait() waits for: a bit each, from 1 on."""
    if call.name != "rt_sigtimedwait":
        return ()
    bits = int.from_bytes(memory.read(call.args[0], 8) or b"", "little")
    return tuple(number for number in range(1, 65) if bits >> number - 1 & 1)


def _decode_poll_set(call: Syscall, memory: ReadsMemory) -> list[int]:
    count = min(call.args[1], MOST_DESCRIPTORS)
    data = memory.read(call.args[0], count * 8) or b""
    whole = data[: len(data) // 8 * 8]
    return [fd for fd, _, _ in struct.iter_unpack("=ihh", whole) if fd >= 0]


def _decode_select_set(call: Syscall, memory: ReadsMemory) -> list[int]:
    highest = min(_signed_int(call.args[0]), 1024)
    fds: list[int] = []
    for address in call.args[1:4]:
        data = memory.read(address, (highest + 7) // 8) if address and highest > 0 else None
        bits = int.from_bytes(data or b"", "little")
        fds += [fd for fd in range(highest) if bits >> fd & 1]
    return fds[:MOST_DESCRIPTORS]


def _decode_unix_path(call: Syscall, memory: ReadsMemory) -> str | None:
    data = memory.read(call.args[1], min(call.args[2], 110)) or b""
    if len(data) < 3 or struct.unpack_from("=H", data)[0] != socket.AF_UNIX:
        return None
    abstract = data[2] == 0
    name = data[3:] if abstract else data[2:].split(b"\0")[0]
    return ("@" if abstract else "") + os.fsdecode(name)


def _decode_timeout(call: Syscall, memory: ReadsMemory) -> float | None:
    if (at := kernel.MILLISECONDS_ARGUMENT.get(call.name)) is not None:
        limit = _signed_int(call.args[at])
        return limit / 1000 if limit >= 0 else None
    if call.name == "clock_nanosleep":
        seconds = memory.timespec(call.args[2])
        clock = _signed_int(call.args[0])
        return _seconds_left(seconds, clock) if call.args[1] & _ABSOLUTE else seconds
    if call.name == "select":
        return memory.timespec(call.args[4], 1e-6)
    if call.name == "futex":
        return _decode_futex_timeout(call, memory)
    if (at := kernel.TIMESPEC_ARGUMENT.get(call.name)) is not None:
        return memory.timespec(call.args[at])
    return None


def _decode_futex_timeout(call: Syscall, memory: ReadsMemory) -> float | None:
    operation = futex_operation(call)
    if operation not in FUTEX_WAITS:
        return None
    seconds = memory.timespec(call.args[3])
    if operation == FUTEX_WAIT:
        return seconds
    real = operation == FUTEX_LOCK_PI or call.args[1] & _CLOCK_REALTIME_FLAG
    return _seconds_left(seconds, time.CLOCK_REALTIME if real else time.CLOCK_MONOTONIC)


def _seconds_left(until: float | None, clock: int) -> float | None:
    """Return what is left until a moment on a clock."""
    if until is None or clock not in (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC):
        return None
    return max(0.0, until - time.clock_gettime(clock))


def _signed_int(value: int) -> int:
    """Return the C int in a register."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value
