"""How long each rank of one start took for what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..kept.span import Row, Span
from ..kept.timeline import Timeline

_KINDS = ("step", "own step", "phase", "import")
# What it lies in and itself, each by kind and name: ("step tokenizer", "import torch").
Key = tuple[str, ...]


@dataclass
class Taken:
    """A step, or what lies in one. Seconds by rank."""

    title: str
    number: int | None
    took: dict[int, float] = field(default_factory=dict)
    unended: dict[int, float] = field(default_factory=dict)  # until the verdict, or its own end

    @property
    def longest(self) -> float | None:
        """Return the longest time that a rank took; None if no rank has ended it."""
        return max(self.took.values(), default=None)


def taken(times: Timeline) -> dict[Key, Taken]:
    """Return what ranks did, in the order in which it was begun."""
    found: dict[Key, Taken] = {}
    begun: dict[Key, float] = {}
    for row in times.rows:
        for key, span in _keyed(row):
            one = found.setdefault(key, Taken(span.title, span.number))
            begun[key] = min(begun.get(key, span.start), span.start)
            if span.end is None:
                one.unended[row.rank] = (row.ended or times.length) - span.start
            else:
                one.took[row.rank] = one.took.get(row.rank, 0.0) + span.end - span.start
    return {key: found[key] for key in sorted(found, key=lambda key: begun[key])}


def _keyed(row: Row) -> Iterator[tuple[Key, Span]]:
    """Yield a rank's spans with a key that the same step of another rank has, too.

    A step that comes more than once is as many steps: the first of one rank is that of the other.
    """
    around: list[tuple[Span, Key]] = []
    times: Counter[Key] = Counter()
    for span in row.spans:
        while around and not _is_inside(span, around[-1][0]):
            around.pop()
        if span.kind not in _KINDS:
            continue
        outer = around[-1][1] if around else ()
        key = (*outer, f"{span.kind} {span.name}")
        times[key] += 1
        if span.kind == "own step" and times[key] > 1:
            key = (*outer, f"{key[-1]} {times[key]}")
        around.append((span, key))
        yield key, span


def _is_inside(span: Span, other: Span) -> bool:
    return span.depth > other.depth and (other.end is None or span.start < other.end)
