"""Which word a thread in futex() waits on, and who has the mutex that the word belongs to.

The layout of glibc's pthread_mutex_t on 64-bit machines (sysdeps/nptl/bits/struct_mutex.h):
int lock, unsigned count, int owner, unsigned nusers, int kind. The word is 0 for free, 1 for
locked, 2 for locked and waited for; that of a mutex with priority inheritance, or a robust one, is
the owner's thread id with flags (man 2 futex). Other locks (semaphores, conditions, Python's own)
have no owner, and do not look like this.
"""

from __future__ import annotations

import os
import struct
from typing import Protocol

from ..facts import Futex, Syscall
from .thread_ids import ids_in

WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2 = 0, 6, 9, 11, 13  # linux/futex.h
WAITS = (WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2)
_PRIVATE = 128  # FUTEX_PRIVATE_FLAG: nobody outside the process has this lock
_THREAD_ID = 0x3FFFFFFF  # FUTEX_TID_MASK
_MUTEX = struct.Struct("=IIIII")
_HIGHEST_PID = 1 << 22  # PID_MAX_LIMIT
_MOST_USERS = 4096
# Normal, recursive, error-checking or adaptive (0 to 3); robust, priority inheritance or
# protection, shared between processes, and the flags of lock elision.
_KINDS = 0x3 | 0x10 | 0x20 | 0x40 | 0x80 | 0x100 | 0x200


class Reads(Protocol):
    """Reads memory: `memory.Memory`, or what a test puts in its place."""

    def read(self, address: int, size: int) -> bytes | None: ...


def operation(call: Syscall) -> int:
    """Return the operation of a call of futex(), without its flags."""
    return call.args[1] & 127


def decode(call: Syscall, memory: Reads, pid: int) -> Futex | None:
    """Return what a call of futex() waits on, None for one that does not wait."""
    if call.name != "futex" or operation(call) not in WAITS:
        return None
    address = call.args[0]
    data = memory.read(address, _MUTEX.size) or b""
    if len(data) < 4:
        return Futex(address)
    value = int.from_bytes(data[:4], "little")
    owner = owner_in(data, operation(call))
    if owner is None or not call.args[1] & _PRIVATE:
        return Futex(address, value, owner)
    return Futex(address, value, owner, thread_exists(pid, owner))


def owner_in(data: bytes, waits: int = WAIT) -> int | None:
    """Return the thread id of the owner of a locked mutex, None if these bytes are none."""
    if waits in (LOCK_PI, LOCK_PI2) and len(data) >= 4:
        return _plausible(int.from_bytes(data[:4], "little") & _THREAD_ID)
    if len(data) < _MUTEX.size:
        return None
    word, _, owner, users, kind = _MUTEX.unpack_from(data)
    if word not in (1, 2) and word & _THREAD_ID != owner:
        return None
    if not 1 <= users <= _MOST_USERS or kind & ~_KINDS:
        return None
    return _plausible(owner)


def _plausible(tid: int) -> int | None:
    return tid if 1 < tid <= _HIGHEST_PID else None


def thread_exists(pid: int, tid: int) -> bool | None:
    """Return whether a process has this thread; None where its ids are not those that we see."""
    try:
        if os.path.exists(f"/proc/{pid}/task/{tid}"):
            return True
        ids = ids_in(f"/proc/{pid}/status")
    except OSError:
        return None
    return None if len(ids) > 1 else False  # more than one: a pid namespace of its own
