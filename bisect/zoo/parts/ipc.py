"""Communication between processes in which the other side is missing: locks on files and semaphores
that a process outside the job holds, FIFOs that nobody opens or reads, a Unix socket whose
service says nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from .processes import helper

_FLOCK = """
import fcntl, time
path, seconds = sys.argv[1], float(sys.argv[2])
os.makedirs(os.path.dirname(path), exist_ok=True)
file = open(path, "a")
fcntl.flock(file, fcntl.LOCK_EX)
ready("held")
if seconds:
    time.sleep(seconds)
    file.close()
threading.Event().wait()
"""


@contextlib.contextmanager
def hold_flock(path: Path, seconds: float = 0.0) -> Iterator[int]:
    """Have another process hold flock(2) on `path`, which is made; yield its pid.

    It lets go after `seconds`, with 0 not before the block is left.
    """
    with helper(_FLOCK, path, seconds) as holder:
        yield holder.pid


_SILENT_SERVICE = """
import socket
with socket.socket(socket.AF_UNIX) as server:
    server.bind(sys.argv[1])
    server.listen(128)
    ready()
    kept = []
    while True:
        kept.append(server.accept())
"""

# Belongs to the process, not to the open file: fcntl_locking(2).
_RECORD_LOCK = """
import fcntl
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
ready()
threading.Event().wait()
"""


@contextlib.contextmanager
def silent_unix_socket(path: Path) -> Iterator[int]:
    """A service at the Unix socket `path` that accepts and never says a word; yield its pid."""
    with helper(_SILENT_SERVICE, path) as service:
        yield service.pid


@contextlib.contextmanager
def hold_record_lock(path: Path) -> Iterator[int]:
    """Have another process hold a POSIX lock on the file `path`, which is made; yield its pid."""
    with helper(_RECORD_LOCK, path) as holder:
        yield holder.pid


# A set of one semaphore, which a child took and died with: it had not asked for SEM_UNDO.
_SEMAPHORE = """
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
def taken_semaphore() -> Iterator[int]:
    """A System V semaphore (its id) that a dead process has; waiting for it is semop(2)."""
    with helper(_SEMAPHORE) as semaphore:
        yield int(semaphore.said)


# Opened for reading and writing it never blocks (fifo(7)); what is written fills it up.
_OPEN_BUT_UNREAD = """
import fcntl
descriptor = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, 4096)
ready()
threading.Event().wait()
"""


def unopened_fifo(path: Path) -> Path:
    """Make a FIFO that nobody opens: who opens it waits for the other end."""
    os.mkfifo(path)
    return path


@contextlib.contextmanager
def unread_fifo(path: Path) -> Iterator[Path]:
    """A FIFO that a process has open and never reads: it takes 4096 bytes, and then no more."""
    os.mkfifo(path)
    with helper(_OPEN_BUT_UNREAD, path):
        yield path
