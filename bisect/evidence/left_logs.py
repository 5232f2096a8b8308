"""Logs that a job's processes have left: a supervisor's child that has ended is on no list of the
kernel's, but what it wrote last is in a file, and how often its like has written that.

Looked at are the folders in which the job's processes work, and those of the logs that they have
open: whoever starts ranks or workers gives them logs side by side. A log counts that was written
since the job started, that nobody of the job has open, and whose last line names an error.

Workers without a log of their own write to that of who has started them: there the same error comes
again and again.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from ..base.masking import mask_text
from .descriptors import read_links

LOG_ENDINGS = (".log", ".err", ".out", ".txt", ".stderr")
# How Python names an error in the last line of a traceback, and how logs do.
ERROR_LINE = re.compile(r"(?:\w+\.)*\w+(?:Error|Exception)\b.*|.*\b(?:FATAL|CRITICAL|ERROR)\b.*")
_MOST_FOLDERS = 8
_MOST_ENTRIES = 256  # of a folder
_MOST_LOGS = 32
_TAIL = 1 << 18  # bytes of a log that are read
_LONGEST = 300  # characters of a line
_SAME_TIME = 2.0  # seconds that a disk's clock may be behind


class LeftLog(NamedTuple):
    """A log that ends with an error, and that nobody has open."""

    path: str
    error: str  # its last line, without secrets
    times: int  # that this line is in it, whatever its numbers are
    written: float  # when, on the wall clock


def find_left_logs(pids: Iterable[int], since: float) -> list[LeftLog]:
    """Return the logs that processes of a job have left, written after `since` on the wall clock,
    the latest first; those of processes that we may not look at are not known. May block.
    """
    folders: dict[str, None] = {}
    opened: set[str] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            links = set(read_links(pid).values())
            opened |= links
            logs = (one for one in links if one.startswith("/") and one.endswith(LOG_ENDINGS))
            folders.update(dict.fromkeys([os.path.dirname(one) for one in logs]))
            folders[os.readlink(f"/proc/{pid}/cwd")] = None
    paths = (path for one in [*folders][:_MOST_FOLDERS] for path in _list_logs(one, opened, since))
    found = [log for path in [*paths][:_MOST_LOGS] if (log := read_left_log(path)) is not None]
    return sorted(found, key=lambda log: -log.written)


def find_repeated_failure(path: str) -> LeftLog | None:
    """Return the last error by which Pythons that write to this file have ended, and how many have
    ended by one like it; None where none has. May block.
    """
    found = _read_tail(path)
    if found is None:
        return None
    lines, written = found
    errors: list[str] = []
    is_inside = False
    for line in lines:
        if line.startswith("Traceback (most recent call last):"):
            is_inside = True
        elif is_inside and line.strip() and not line[0].isspace():
            is_inside = False
            errors += [line.strip()] if ERROR_LINE.fullmatch(line.strip()) else []
    if not errors:
        return None
    return LeftLog(path, mask_text(errors[-1])[:_LONGEST], _count_like_last(errors), written)


# The last line of a traceback of Python's; a program's own log names other errors too.
EXCEPTION = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)(?:: .*)?")
_FEWEST_TIMES = 3
_LATELY = 64  # lines: further up it is no longer what happens


def find_repeated_error(
    paths: Iterable[str], pattern: re.Pattern[str] = EXCEPTION
) -> LeftLog | None:
    """Return the first of these files, which somebody may still write to, that has one error (a
    line of `pattern`) three times or more, and among its last lines; None where there is none. May
    block.
    """
    for path in paths:
        if (tail := _read_tail(path)) is None:
            continue
        if (found := count_last_error(tail[0], pattern)) is not None:
            return LeftLog(path, *found, tail[1])
    return None


def count_last_error(
    lines: Sequence[str], pattern: re.Pattern[str] = EXCEPTION
) -> tuple[str, int] | None:
    """Return the last error among the last of these lines, without secrets, and how often it is
    there, whatever its numbers are; None for one that is there less than three times.
    """
    lines = [line.strip() for line in lines if line.strip()]
    at = max((n for n, line in enumerate(lines) if pattern.fullmatch(line)), default=-1)
    if at < len(lines) - _LATELY or at < 0:
        return None
    times = _count_like_last(lines[: at + 1])
    return (mask_text(lines[at])[:_LONGEST], times) if times >= _FEWEST_TIMES else None


def _list_logs(folder: str, opened: Collection[str], since: float) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(folder))[:_MOST_ENTRIES]:
            path = os.path.join(folder, name)
            if not name.endswith(LOG_ENDINGS) or path in opened:
                continue
            about = os.lstat(path)
            if stat.S_ISREG(about.st_mode) and about.st_mtime >= since - _SAME_TIME:
                yield path


def read_left_log(path: str) -> LeftLog | None:
    """Return what a log ends with and how often it says so, None if that is no error. May block."""
    found = _read_tail(path)
    if found is None:
        return None
    lines = [line.strip() for line in found[0] if line.strip()]
    if not lines or not ERROR_LINE.fullmatch(lines[-1]):
        return None
    return LeftLog(path, mask_text(lines[-1])[:_LONGEST], _count_like_last(lines), found[1])


def _count_like_last(lines: Sequence[str]) -> int:
    """Return how many lines are like the last one, whatever its numbers are."""
    alike = [re.sub(r"\d+", "#", line) for line in lines]
    return alike.count(alike[-1])


def _read_tail(path: str) -> tuple[list[str], float] | None:
    """Return the last lines of a file, and when it was written; None where it cannot be read, or is
    a terminal or a pipe, which is not touched.
    """
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode):
            return None
        with open(path, "rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - _TAIL)
            file.seek(start)
            data = file.read(_TAIL)
    except (OSError, ValueError):
        return None
    # Half a line may hold a secret without the name that gives it away.
    text = (data.partition(b"\n")[2] if start else data).decode(errors="replace")
    return text.splitlines(), about.st_mtime
