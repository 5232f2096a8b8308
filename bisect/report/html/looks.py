"""The looks at the processes that matter side by side: what stayed the same, and what moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ...diagnosis.frames import worded
from ...diagnosis.roles import role_of
from ...diagnosis.view import main_kernel
from ...facts import Look, RankFacts, Sample, Verdict
from ..stacks import syscall_in_words
from ..words import counted, of_ranks
from .shown import Shown

_MOST_PROCESSES = 12
_MOST_LOOKS = 8  # of one process: the first ones and the last
_FRAMES = 4  # innermost ones
_SHORT = 240  # characters


@dataclass(frozen=True)
class Cell:
    words: str
    changed: bool  # it is another one than in the look before


@dataclass(frozen=True)
class Aspect:
    """One thing over all looks."""

    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Process:
    """One process, a column a look."""

    who: str
    moved: str  # what moved, in words
    heads: tuple[str, ...]  # "+0.0 s, py-spy"
    aspects: tuple[Aspect, ...]


@dataclass(frozen=True)
class LooksPart:
    processes: tuple[Process, ...]
    left_out: str  # a sentence, "" if all are shown


def looks_part(ranks: Sequence[RankFacts], verdict: Verdict, shown: Shown) -> LooksPart:
    """Return the looks at the culprits and their children, at the others that are stuck, and at
    as many of those that wait as there is room for.
    """
    looked = [one for one in ranks if one.looks]
    blamed = [one for one in looked if one.rank in verdict.ranks.culprit]
    stuck = [one for one in looked if one.rank in verdict.ranks.stuck and one not in blamed]
    rest = [one for one in looked if one not in blamed and one not in stuck]
    processes: list[Process] = []
    seen: list[int] = []
    for one in (*blamed, *stuck, *rest):
        if len(processes) < _MOST_PROCESSES:
            processes += _of(one, shown)
            seen.append(one.rank)
    left = [one.rank for one in looked if one.rank not in seen]
    return LooksPart(
        tuple(processes),
        f"Those at {of_ranks(left)} are in evidence.json." if left else "",
    )


def _of(one: RankFacts, shown: Shown) -> Iterator[Process]:
    yield _process(f"rank {one.rank}", one.looks, one.moved, shown)
    for looks in one.children:
        if looks:
            yield _process(f"{role_of(looks[-1])}, child of rank {one.rank}", looks, "", shown)


def _process(who: str, looks: Sequence[Look], moved: str, shown: Shown) -> Process:
    first, last, count = looks[0], looks[-1], len(looks)
    if len(looks) > _MOST_LOOKS:
        looks = (*looks[: _MOST_LOOKS // 2], *looks[-_MOST_LOOKS // 2 :])
    aspects = [_aspect(name, [tell(look) for look in looks], shown) for name, tell in _TOLD]
    over = f"{counted(count, 'look')} in {last.at - first.at:.1f} s"
    return Process(
        who=f"{who}, pid {last.pid}",
        moved=f"{over}: {moved or 'nothing moved'}" if moved or len(looks) > 1 else over,
        heads=tuple(f"+{look.at - first.at:.1f} s, {look.rung}" for look in looks),
        aspects=tuple(one for one in aspects if any(cell.words for cell in one.cells)),
    )


def _aspect(name: str, words: Sequence[str], shown: Shown) -> Aspect:
    cells = [
        Cell(shown.text(word, _SHORT), at > 0 and word != words[at - 1])
        for at, word in enumerate(words)
    ]
    return Aspect(name, tuple(cells))


# ---- what is told of a look ----------------------------------------------------------------------


def _state(look: Look) -> str:
    kernel = main_kernel(look)
    wchan = kernel.wchan if kernel else ""
    return ", ".join(filter(None, (look.state or "gone", wchan if wchan != "0" else "")))


def _call(look: Look) -> str:
    kernel = main_kernel(look)
    return syscall_in_words(kernel.syscall) if kernel and kernel.syscall else ""


def _stack(look: Look) -> str:
    frames = look.main.frames if look.main else ()
    return " < ".join(worded(frame) for frame in frames[:_FRAMES])


def _counter(tell: Callable[[Sample], str]) -> Callable[[Look], str]:
    return lambda look: tell(look.sample) if look.sample else ""


def _received(sample: Sample) -> str:
    return "" if sample.received is None else f"{sample.received:,} bytes"


_TOLD: tuple[tuple[str, Callable[[Look], str]], ...] = (
    ("State", _state),
    ("System call", _call),
    ("Innermost frames", _stack),
    ("CPU time", _counter(lambda sample: f"{sample.cpu:.2f} s")),
    ("Read", _counter(lambda sample: f"{sample.read:,} bytes")),
    ("Written", _counter(lambda sample: f"{sample.written:,} bytes")),
    ("From the network", _counter(_received)),
    ("Not readable", lambda look: "; ".join(look.missing)),
)
