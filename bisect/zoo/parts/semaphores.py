"""Semaphores of the kernel that somebody took and never gave back: sysvipc(7)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .processes import helper

# A set of one semaphore, which a child took and died with: it had not asked for SEM_UNDO.
_TAKEN = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
IPC_PRIVATE, IPC_RMID, SETVAL = 0, 0, 16
number = libc.semget(IPC_PRIVATE, 1, 0o600)
if number < 0:
    raise OSError(ctypes.get_errno(), "semget")
def at_end():
    libc.semctl(number, 0, IPC_RMID)
libc.semctl(number, 0, SETVAL, 1)
child = os.fork()
if not child:
    libc.semop(number, (ctypes.c_short * 3)(0, -1, 0), 1)
    os._exit(1)
os.waitpid(child, 0)
ready(number)
threading.Event().wait()
"""


@contextlib.contextmanager
def taken() -> Iterator[int]:
    """A System V semaphore (its id) that a dead process has; waiting for it is semop(2)."""
    with helper(_TAKEN) as semaphore:
        yield int(semaphore.said)
