"""Our own lines (rank/lines.py), wherever they stand in a log. Pure.

A log may have anything in front of them (a scheduler's, a collector's, a launcher's prefix), and
other output between them, even in the same line.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .prefixes import stripped, without_colours

_STAMP = re.compile(
    r"\[(?P<clock>\d\d:\d\d:\d\d\.\d{3})\]\[\+(?P<elapsed>\d{1,9}\.\d{3})s\]"
    r"(?:\[R(?P<rank>\d{1,7})/(?P<world>\d{1,7})\]\[LR(?P<local>\d{1,7})\]|\[watch\])"
    r"\[PID:(?P<pid>\d{1,9})\] ?"
)
_OURS = "[PID:"
_DAY = 86400.0
OUTCOMES = ("HANG  ", "SLOW  ", "CRASH  ", "INTERRUPTED  ", "OK  ")
VERDICT_LINES = 16
_BEGINS = re.compile("|".join(OUTCOMES))
_RECENT = 100  # lines at a log's end: the last of them with a collector's time tells when it was


@dataclass(frozen=True)
class OurLine:
    """A line that a rank printed, or its watch (`rank` None)."""

    number: int  # in the log, from 1
    at: float  # seconds after midnight of the log's first day
    elapsed: float  # seconds since the first line of our code in that process
    pid: int
    text: str
    rank: int | None = None
    world: int = 0


@dataclass(frozen=True)
class Read:
    """What a log holds of ours."""

    lines: tuple[OurLine, ...]
    end: float | None  # of the log, on the clock of `OurLine.at`
    other: tuple[tuple[int, str], ...] = ()  # of the others, those that may be of a verdict


def read(raw_lines: Iterable[str]) -> Read:
    """Return all lines of ours in a log, in its order. What cannot be one costs next to nothing: a
    log may have millions.
    """
    found: list[OurLine] = []
    other: list[tuple[int, str]] = []
    recent: deque[str] = deque(maxlen=_RECENT)
    ahead: float | None = None  # by how much a collector's clock is ahead of ours
    of_a_verdict = 0  # lines that may still follow
    for number, raw in enumerate(raw_lines, 1):
        recent.append(raw)
        ours: list[OurLine] = []
        if _OURS in raw:
            line = without_colours(raw.rstrip("\r\n"))
            ours = list(_in_line(line, number, found[-1].at if found else None))
            found += ours
            if ours and (outer := stripped(line).at) is not None:
                ahead = outer - ours[-1].at
        if found and not ours:
            of_a_verdict = VERDICT_LINES if _BEGINS.search(raw) else of_a_verdict - 1
            if of_a_verdict > 0:
                other.append((number, stripped(raw.rstrip("\r\n")).text))
    ends = [one.at for one in found]
    collected = next((at for raw in reversed(recent) if (at := stripped(raw).at) is not None), None)
    if ahead is not None and collected is not None:
        ends.append(collected - ahead)
    return Read(tuple(found), max(ends, default=None), tuple(other))


def _in_line(line: str, number: int, before: float | None) -> Iterator[OurLine]:
    stamps = list(_STAMP.finditer(line))
    for stamp, after in zip(stamps, [*stamps[1:], None], strict=False):
        end = after.start() if after else len(line)
        before = _clock(stamp["clock"], before)
        yield OurLine(
            number=number,
            at=before,
            elapsed=float(stamp["elapsed"]),
            pid=int(stamp["pid"]),
            text=line[stamp.end() : end].rstrip(),
            rank=None if stamp["rank"] is None else int(stamp["rank"]),
            world=int(stamp["world"] or 0),
        )


def _clock(text: str, before: float | None) -> float:
    """Return the time of day as seconds, on the day that is nearest to the line before."""
    hours, minutes, seconds = text.split(":")
    at = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    return at if before is None else at + round((before - at) / _DAY) * _DAY
