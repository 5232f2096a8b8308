"""What a run folder holds, as far as it goes into a bundle. Links are not followed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...evidence.aside import within
from ..kept.files import Files
from .allowed import REPORTS, Form, Rule, allowed

MOST_FILES = 20_000  # that are looked at
_DEEPEST = 12
_LISTING = 10.0  # seconds


@dataclass(frozen=True)
class Source:
    """A file as it lies in the folder."""

    path: str  # below the folder, with /; a name may hold anything but that
    rule: Rule
    data: bytes  # what was read of it
    size: int  # of all of it, bytes


@dataclass(frozen=True)
class LeftOut:
    """A file that is not in the bundle, and why."""

    path: str
    why: str


def contents(folder: Path, limit: float, left_out: list[LeftOut]) -> list[Source]:
    """Return the files of `folder` for a bundle, the most useful first; it takes `limit` seconds
    at most. What is left out is told.
    """
    until = time.monotonic() + limit
    missing: list[str] = []
    files = Files(folder, until, missing)
    try:
        paths = within(min(_LISTING, limit), lambda: sorted(_paths(folder, left_out)))
    except TimeoutError:
        left_out.append(LeftOut(".", f"it could not be listed within {_LISTING:.0f} s"))
        return []
    found = []
    for path, size in paths:
        rule = allowed(path)
        if rule is None:
            if path.rpartition("/")[2] not in REPORTS:
                left_out.append(LeftOut(path, "it is no file of a run that is known to be of use"))
        elif (data := _read(files, path, rule)) is None:
            why = missing[-1] if missing else "it is gone"
            left_out.append(LeftOut(path, why.removeprefix(f"{path} ")))
        else:
            found.append(Source(path, rule, data, max(size, len(data))))
    return sorted(found, key=lambda one: (one.rule.rank, one.path))


def _read(files: Files, path: str, rule: Rule) -> bytes | None:
    if rule.form is Form.JSON:
        return files.whole(path, rule.most)
    if rule.form is Form.TEXT:
        return files.head(path, rule.most)
    first = rule.most // 4 if rule.form is Form.LINES else 0
    ends = files.both_ends(path, max(first, 1), rule.most - max(first, 1))
    if ends is None:
        return None
    begin, end = ends
    if not end or len(begin) + len(end) < rule.most:
        return begin + end
    # What was cut through is no whole line: half a secret would not be known.
    return begin[: begin.rfind(b"\n") + 1] + end[end.find(b"\n") + 1 :]


def _paths(folder: Path, left_out: list[LeftOut]) -> Iterator[tuple[str, int]]:
    """Yield path and size of each regular file below `folder`."""
    waiting, seen = [("", 0)], 0
    while waiting:
        below, depth = waiting.pop()
        try:
            entries = sorted(os.scandir(folder / below), key=lambda entry: entry.name)
        except OSError as error:
            left_out.append(LeftOut(below or ".", f"it cannot be listed: {error.strerror}"))
            continue
        for entry in entries:
            path = f"{below}/{entry.name}" if below else entry.name
            seen += 1
            if seen > MOST_FILES:
                left_out.append(LeftOut(below or ".", f"only {MOST_FILES:,} files were looked at"))
                return
            if entry.is_symlink():
                left_out.append(LeftOut(path, "it is a link, which is not followed"))
            elif entry.is_dir(follow_symlinks=False):
                if depth < _DEEPEST:
                    waiting.append((path, depth + 1))
                else:
                    left_out.append(LeftOut(path, "it lies too deep"))
            elif entry.is_file(follow_symlinks=False):
                yield path, entry.stat(follow_symlinks=False).st_size
            else:
                left_out.append(LeftOut(path, "it is no regular file"))
