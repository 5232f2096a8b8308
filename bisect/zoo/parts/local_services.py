"""Services on this machine that others hold on to: Unix sockets, locks on records of files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from .processes import helper

_SILENT = """
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
def silent_at(path: Path) -> Iterator[int]:
    """A service at the Unix socket `path` that accepts and never says a word; yield its pid."""
    with helper(_SILENT, path) as service:
        yield service.pid


@contextlib.contextmanager
def record_lock_held(path: Path) -> Iterator[int]:
    """Have another process hold a POSIX lock on the file `path`, which is made; yield its pid."""
    with helper(_RECORD_LOCK, path) as holder:
        yield holder.pid
