"""How far each rank came, by the lines of ours in a log. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from .our_lines import OUTCOMES, VERDICT_LINES, OurLine, Read

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


def progress(log: Read) -> Progress | None:
    """Return how far each rank came in its last start, None for a log without a line of ours."""
    lines = _renamed([one for one in log.lines if one.rank is not None])
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
    verdict_line, verdict = _verdict(log)
    return Progress(
        world,
        tuple(_seen(rank, last[rank], end, len(starts[rank])) for rank in sorted(last)),
        _in_order(reached),
        tuple(rank for rank in range(world) if rank not in set(numbers)),
        verdict,
        verdict_line,
    )


def _renamed(lines: Sequence[OurLine]) -> list[OurLine]:
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
    numbered = sorted((c for c in reached.values() if c.name.isdecimal()), key=_number)
    following = iter(numbered)
    return tuple(next(following) if c.name.isdecimal() else c for c in reached.values())


def _number(checkpoint: Checkpoint) -> int:
    return int(checkpoint.name)


def _seen(rank: int, lines: Sequence[OurLine], end: float, starts: int) -> RankSeen:
    last = lines[-1]
    age = max(0.0, round(end - last.at, 3))
    return RankSeen(rank, last.pid, last.text, last.number, last.elapsed, age, starts)


def _verdict(log: Read) -> tuple[int | None, tuple[str, ...]]:
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
