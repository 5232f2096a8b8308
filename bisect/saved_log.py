"""Logs that were saved of a job: how they are unpacked, what stands in front of their lines, our
own lines (rank/lines.py) in them, and how far each rank came by these.

A log may have anything in front of our lines (a scheduler's, a collector's, a launcher's
prefix), and other output between them, even in the same line. What is here is pure: it takes
bytes and lines, and opens no file.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from .base.lazy_dataclass import dataclass
from .base.line_prefixes import strip_colours, strip_prefixes

_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def unpack_log(data: bytes, most: int) -> bytes:
    """Return `data`, unpacked if gzip has packed it: its first `most` bytes and one more at most.
    Of what is cut off in the middle there is what stands before that.
    """
    if not data.startswith(_GZIP):
        return data
    parts: list[bytes] = []
    left = most + 1
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        try:
            while left > 0 and (part := file.read(min(_CHUNK, left))):
                parts.append(part)
                left -= len(part)
        except (EOFError, OSError, zlib.error):
            pass
    return b"".join(parts)


def decode_log(data: bytes) -> str:
    """Return the text that `data` is, in UTF-8 unless its first bytes say UTF-16."""
    coding = "utf-16" if data.startswith(_UTF_16) else "utf-8-sig"
    return data.decode(coding, "replace")


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
class OurLines:
    """What a log holds of ours."""

    lines: tuple[OurLine, ...]
    end: float | None  # of the log, on the clock of `OurLine.at`
    other: tuple[tuple[int, str], ...] = ()  # of the others, those that may be of a verdict


def read_our_lines(raw_lines: Iterable[str]) -> OurLines:
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
            line = strip_colours(raw.rstrip("\r\n"))
            ours = list(_find_in_line(line, number, found[-1].at if found else None))
            found += ours
            if ours and (outer := strip_prefixes(line).at) is not None:
                ahead = outer - ours[-1].at
        if found and not ours:
            of_a_verdict = VERDICT_LINES if _BEGINS.search(raw) else of_a_verdict - 1
            if of_a_verdict > 0:
                other.append((number, strip_prefixes(raw.rstrip("\r\n")).text))
    ends = [one.at for one in found]
    collected = next(
        (at for raw in reversed(recent) if (at := strip_prefixes(raw).at) is not None), None
    )
    if ahead is not None and collected is not None:
        ends.append(collected - ahead)
    return OurLines(tuple(found), max(ends, default=None), tuple(other))


def _find_in_line(line: str, number: int, before: float | None) -> Iterator[OurLine]:
    stamps = list(_STAMP.finditer(line))
    for stamp, after in zip(stamps, [*stamps[1:], None], strict=False):
        end = after.start() if after else len(line)
        before = _parse_clock(stamp["clock"], before)
        yield OurLine(
            number=number,
            at=before,
            elapsed=float(stamp["elapsed"]),
            pid=int(stamp["pid"]),
            text=line[stamp.end() : end].rstrip(),
            rank=None if stamp["rank"] is None else int(stamp["rank"]),
            world=int(stamp["world"] or 0),
        )


def _parse_clock(text: str, before: float | None) -> float:
    """Return the time of day as seconds, on the day that is nearest to the line before."""
    hours, minutes, seconds = text.split(":")
    at = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    return at if before is None else at + round((before - at) / _DAY) * _DAY


_CHECKPOINT = re.compile(r"CHECKPOINT (?P<name>[\w.-]{1,80}): (?P<title>.*)$")
# Of many ranks the watch says it in one line (monitor/server.py).
_OF_MANY = re.compile(r"(?P<title>.*?)  ranks? (?P<ranks>[\d,-]+), \+(?P<first>[\d.]+) s to .*$")
_MOST_RANKS = 1 << 20


@dataclass(frozen=True)
class Checkpoint:
    """One that was reached, by its number or name, and when by whom: seconds by rank."""

    name: str
    title: str
    elapsed: dict[int, float] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """Its name with its title."""
        return f"{self.name} {self.title}"


@dataclass(frozen=True)
class RankSeen:
    """The last that a rank said. `age`: seconds before the log's end."""

    rank: int
    pid: int
    last: str
    line: int
    elapsed: float
    age: float
    starts: int = 1  # processes that were this rank, one after the other


@dataclass(frozen=True)
class Progress:
    """What a log tells of a job."""

    world: int
    ranks: tuple[RankSeen, ...]  # that said something, in order
    checkpoints: tuple[Checkpoint, ...]
    silent: tuple[int, ...]  # ranks that said nothing at all
    verdict: tuple[str, ...] = ()  # as it stands in the log
    verdict_line: int | None = None

    def missing(self, checkpoint: Checkpoint) -> tuple[int, ...]:
        """Return the ranks that have reached neither a checkpoint nor any after it: in a script of
        one's own some steps are one rank's alone.
        """
        after = self.checkpoints[self.checkpoints.index(checkpoint) :]
        there = {rank for one in after for rank in one.elapsed}
        return tuple(rank for rank in range(self.world) if rank not in there)


def read_progress(log: OurLines) -> Progress | None:
    """Return how far each rank came in its last start, None for a log without a line of ours."""
    lines = _rename_lone_ranks([one for one in log.lines if one.rank is not None])
    said = [one for one in log.lines if one.rank is None]
    if not log.lines:
        return None
    by_rank: dict[int, list[OurLine]] = {}
    for one in lines:
        by_rank.setdefault(one.rank or 0, []).append(one)
    starts = {rank: list(dict.fromkeys(one.pid for one in of)) for rank, of in by_rank.items()}
    last = {rank: [o for o in of if o.pid == starts[rank][-1]] for rank, of in by_rank.items()}
    reached: dict[str, Checkpoint] = {}
    again = any(len(pids) > 1 for pids in starts.values())
    since = min((of[0].number for of in last.values()), default=0) if again else 0
    for one in sorted([o for of in last.values() for o in of], key=lambda o: o.number):
        _reach(reached, one, [one.rank or 0])
    for one in said:
        if one.number >= since:
            _reach_many(reached, one)
    worlds = [of[-1].world for of in last.values()]
    numbers = [*last, *(r for c in reached.values() for r in c.elapsed)]
    world = min(max([*worlds, *(n + 1 for n in numbers)], default=0), _MOST_RANKS)
    end = log.end or 0.0
    verdict_line, verdict = _find_verdict(log)
    return Progress(
        world,
        tuple(_last_seen(rank, last[rank], end, len(starts[rank])) for rank in sorted(last)),
        _in_order(reached),
        tuple(rank for rank in range(world) if rank not in set(numbers)),
        verdict,
        verdict_line,
    )


def _rename_lone_ranks(lines: Sequence[OurLine]) -> list[OurLine]:
    """Return `lines` without those of processes that were alone at first and then a rank of
    several: what they said before counts for the rank that they are.
    """
    final: dict[int, OurLine] = {}
    for one in lines:
        before = final.get(one.pid)
        if before is None or one.world > before.world or one.elapsed < before.elapsed:
            final[one.pid] = one
    return [
        replace(one, rank=final[one.pid].rank, world=final[one.pid].world)
        if one.world == 1 < final[one.pid].world and one.elapsed <= final[one.pid].elapsed
        else one
        for one in lines
    ]


def _reach(reached: dict[str, Checkpoint], one: OurLine, ranks: Sequence[int]) -> None:
    match = _CHECKPOINT.match(one.text)
    if match is None:
        return
    title = re.sub(r" \((?:no\. \d+|skipped)\)$", "", match["title"])
    made = reached.setdefault(match["name"], Checkpoint(match["name"], title))
    for rank in ranks:
        made.elapsed.setdefault(rank, one.elapsed)


def _reach_many(reached: dict[str, Checkpoint], one: OurLine) -> None:
    match = _CHECKPOINT.match(one.text)
    many = _OF_MANY.match(match["title"]) if match else None
    if match is None or many is None:
        return
    made = reached.setdefault(match["name"], Checkpoint(match["name"], many["title"]))
    for rank in _numbers(many["ranks"]):
        made.elapsed.setdefault(rank, one.elapsed)


def _numbers(text: str) -> list[int]:
    """Return the ranks in "0-3,7"."""
    found: list[int] = []
    for run in text.split(","):
        first, _, end = run.partition("-")
        if first.isdecimal() and (end or first).isdecimal() and len(end or first) < 7:
            found += range(int(first), int(end or first) + 1)
    return found


def _in_order(reached: Mapping[str, Checkpoint]) -> tuple[Checkpoint, ...]:
    """Return checkpoints as they were first reached; those with numbers by their numbers."""
    numbered = sorted(
        (c for c in reached.values() if c.name.isdecimal()), key=_get_checkpoint_number
    )
    following = iter(numbered)
    return tuple(next(following) if c.name.isdecimal() else c for c in reached.values())


def _get_checkpoint_number(checkpoint: Checkpoint) -> int:
    return int(checkpoint.name)


def _last_seen(rank: int, lines: Sequence[OurLine], end: float, starts: int) -> RankSeen:
    last = lines[-1]
    age = max(0.0, round(end - last.at, 3))
    return RankSeen(rank, last.pid, last.text, last.number, last.elapsed, age, starts)


def _find_verdict(log: OurLines) -> tuple[int | None, tuple[str, ...]]:
    """Return the last verdict that stands in a log, with the number of its first line."""
    begins = [i for i, (_, text) in enumerate(log.other) if text.startswith(OUTCOMES)]
    if not begins:
        return None, ()
    found: list[str] = []
    for number, text in log.other[begins[-1] :]:
        follows = not found or number == log.other[begins[-1]][0] + len(found)
        labelled = not found or re.match(r"[a-z][a-z ]{0,9}\S* |  ", text)
        if not follows or not labelled or len(found) == VERDICT_LINES:
            break
        found.append(text.rstrip())
    return log.other[begins[-1]][0], tuple(found)
