"""Pipes with a name, and nobody at the other end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from .processes import helper

# Opened for reading and writing it never blocks (fifo(7)); what is written fills it up.
_OPEN_BUT_UNREAD = """
import fcntl
descriptor = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, 4096)
ready()
threading.Event().wait()
"""


def unopened(path: Path) -> Path:
    """Make a FIFO that nobody opens: who opens it waits for the other end."""
    os.mkfifo(path)
    return path


@contextlib.contextmanager
def unread(path: Path) -> Iterator[Path]:
    """A FIFO that a process has open and never reads: it takes 4096 bytes, and then no more."""
    os.mkfifo(path)
    with helper(_OPEN_BUT_UNREAD, path):
        yield path
