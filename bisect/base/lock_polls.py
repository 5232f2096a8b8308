"""Stacks that poll the lock on a file: which lock it is, and where.

Which functions do so is told by the rows of library_functions.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import islice

from .library_functions import (
    Role,
    find_library_functions,
    has_role,
    is_library_file,
    parse_text,
)
from .masking import MASK
from .process_facts import Frame

_MOST_INSIDE = 6  # frames of a try: filelock and fasteners open, lock and log below their loop
_MOST_AROUND = 8  # frames around a poll that may tell the path


def find_lock_poll(frames: Sequence[Frame]) -> Frame | None:
    """Return the innermost of `frames` (innermost first) that polls a lock, None if none does: the
    job's own code inside of one has got the lock.
    """
    for frame in islice((frame for frame in frames if not frame.native), _MOST_INSIDE):
        if has_role(frame.file, frame.name, Role.POLLS_LOCK):
            return frame
        if not is_library_file(frame.file):
            return None
    return None


def describe_polled_lock(frames: Sequence[Frame]) -> str:
    """Return in words which kind of lock `frames` poll, "" if none."""
    frame = find_lock_poll(frames)
    rows = find_library_functions(frame.file, frame.name) if frame is not None else ()
    return next((row.lock for row in rows if Role.POLLS_LOCK in row.roles), "")


def find_told_lock_path(frames: Sequence[Frame]) -> str:
    """Return the path of the lock file that `frames` poll, as the innermost local tells it; a part
    may be masked (`compile_path_pattern`). "" if none tells it.
    """
    for frame in islice((frame for frame in frames if not frame.native), _MOST_AROUND):
        values = dict(frame.locals)
        for row in find_library_functions(frame.file, frame.name):
            paths = (parse_text(values.get(name, "")) for name in row.path_locals)
            if path := next(filter(None, paths), ""):
                return os.path.join(path, row.path_below) if row.path_below else path
    return ""


def compile_path_pattern(path: str) -> re.Pattern[str]:
    """Return what a path must look like of which parts are masked (a file's hash as its name)."""
    return re.compile("[^/]*".join(map(re.escape, path.split(MASK))))
