"""What is said of a job that was looked at. Words from facts."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Sequence

from ..facts import RankFacts
from ..report.people_lines import labelled, more
from ..report.terminal import short_stack, verdict_lines
from ..report.words import counted, cut, of_ranks, printable, ranges, seconds
from .judging import Judgement

_MOST_STACKS = 3  # of further ranks at fault
_NUMBERS = re.compile(r"\b(ranks?) (\d+(?:[-,]\d+)*)")


def hang_lines(
    found: Judgement, run_dir: str, state: str, width: int | None, again: bool = True
) -> list[str]:
    """Return the verdict on a job that hangs, or computes in the same few places. `again`: its
    command starts it again.
    """
    lines = verdict_lines(
        found.verdict, found.facts, found.ranks, run_dir=run_dir, state=state, width=None
    )
    if found.verdict.checkpoint is None:
        lines[0] = re.sub(r" {3,}", "   ", lines[0])
    if not again:
        lines = [line for line in lines if not line.startswith("prove it")]
    stack = next((at for at, line in enumerate(lines) if line.startswith("stack ")), None)
    if stack is not None:
        lines[stack + 1 : stack + 1] = _other_stacks(found)
    if found.verdict.outcome == "slow":
        lines.insert(1, _at_work(found))
    return [cut(line, width) for line in with_unknown(lines, found.unnumbered)]


def _other_stacks(found: Judgement) -> list[str]:
    """Return where the other ranks at fault are, if not where the first one is."""
    blamed = [r for r in found.ranks if r.rank in found.verdict.ranks.culprit]
    ranks_at: dict[str, list[int]] = {}
    for one in blamed:
        ranks_at.setdefault(short_stack(one, found.facts), []).append(one.rank)
    others = [(where, ranks) for where, ranks in list(ranks_at.items())[1:] if where]
    lines = [line for where, ranks in others for line in more(f"{of_ranks(ranks)}: {where}")]
    left = len(lines) - _MOST_STACKS
    return [
        *lines[:_MOST_STACKS],
        *(more(f"and {counted(left, 'place')} more") if left > 0 else ()),
    ]


def _at_work(found: Judgement) -> str:
    busy = [r.rank for r in found.ranks if r.busy]
    still = seconds(found.facts.still or 0.0)
    verb = "computes" if len(busy) == 1 else "compute"
    (line,) = labelled(
        "busy",
        f"{of_ranks(busy)} {verb} in the same few places for {still}: at work, or a loop "
        "without end. --for 60 tells",
    )
    return line


def moving_lines(found: Judgement, width: int | None = None) -> list[str]:
    """Return what moves, and what does not: "moving: rank 3 reads 40 MB/s; ranks 0-2 wait"."""
    moves = [r for r in found.ranks if r.rank in found.moving and r.moved]
    first = moves[0] if moves else None
    text = f"moving: rank {first.rank} {first.moved}" if first else "moving"
    rest = [r.rank for r in moves[1:]]
    text += f"; {of_ranks(rest)} too" if rest else ""
    told = {*found.moving, *found.quiet}
    waiting = [r.rank for r in found.ranks if r.alive and r.rank not in told]
    text += f"; {of_ranks(waiting)} {'waits' if len(waiting) == 1 else 'wait'}" if waiting else ""
    lines = [text, *(_quiet(found, r) for r in found.ranks if r.rank in found.quiet)]
    return [cut(printable(line), width) for line in with_unknown(lines, found.unnumbered)]


def _quiet(found: Judgement, facts: RankFacts) -> str:
    stack = short_stack(facts, found.facts)
    where = f": {stack}" if stack else ""
    return f"        rank {facts.rank} has not moved meanwhile{where}"


def with_unknown(lines: Sequence[str], unnumbered: Collection[int]) -> list[str]:
    """Return lines in which ranks that nobody knows the numbers of are `?`."""
    if not unnumbered:
        return list(lines)

    def named(match: re.Match[str]) -> str:
        numbers = {n for run in match[2].split(",") for n in _run(run)}
        known = sorted(numbers - set(unnumbered))
        parts = [ranges(known)] if known else []
        return f"{match[1]} {','.join([*parts, '?'] if len(known) < len(numbers) else parts)}"

    return [_NUMBERS.sub(named, line) for line in lines]


def _run(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def state_after(pid: int, notebook: int | None, watched: bool, ends: bool = False) -> str:
    """Return what a job is left in, and how it can be ended. The kernel of a notebook is not ours
    to end, nor to offer. `ends`: it was asked to be ended.
    """
    if notebook is not None:
        return (
            "still running, untouched; interrupt the cell: the notebook's kernel "
            f"({notebook}) is left alone"
        )
    if ends:
        return "being ended, as asked: all ranks and their children"
    seen = "untouched, watched since its start" if watched else "untouched"
    return f"still running, {seen}; end it: hangbisect attach {pid} --kill"


def age(started: int, ticks: int) -> str:
    """Return for how long a process has run: `started` in clock ticks after boot."""
    return seconds(max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started / ticks))


def size(numbers: Sequence[int | None], world: int) -> str:
    """Return which ranks of how many are here: "8 ranks", "ranks 0-3 of 8", "2 ranks (?)"."""
    known = [n for n in numbers if n is not None]
    if not numbers:
        return "no rank yet"
    if len(known) < len(numbers):
        return f"{counted(len(numbers), 'rank')} (?)"
    if len(known) == max(world, 1):
        return counted(len(known), "rank")
    return f"{of_ranks(known)} of {world}"
