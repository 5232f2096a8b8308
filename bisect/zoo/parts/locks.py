"""Locks on files that a process outside the job holds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from .processes import helper

_HOLDER = """
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
def flock_held(path: Path, seconds: float = 0.0) -> Iterator[int]:
    """Have another process hold flock(2) on `path`, which is made; yield its pid.

    It lets go after `seconds`, with 0 not before the block is left.
    """
    with helper(_HOLDER, path, seconds) as holder:
        yield holder.pid
