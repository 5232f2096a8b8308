"""Ranks that went the same way, as one row of the timeline: a thousand rows nobody reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from ...facts import Ranks
from ..kept.span import Kind, Row, Span

APART = 16  # rows; up to so many each rank has its own
_OWN = 8  # culprits that have rows of their own in any case
_MOST = 40  # rows; where there would be more, where a rank was in the end makes no difference

# How a rank stands in the end, the most interesting first.
STANDINGS = ("culprit", "never started", "stuck", "waiting", "ended", "")
SpanKey = tuple[Kind, str, int]


@dataclass(frozen=True)
class Stretch:
    """A span as all ranks of a group had it: their medians, and the shortest and longest."""

    kind: Kind
    name: str
    title: str
    number: int | None
    depth: int
    start: float
    end: float
    open: bool  # it had not ended
    least: float  # seconds
    most: float


@dataclass(frozen=True)
class Group:
    """One row: a rank, or many that stand the same and came equally far."""

    standing: str
    rows: tuple[Row, ...]
    stretches: tuple[Stretch, ...]  # by start, those around others first


def grouped(rows: Sequence[Row], ranks: Ranks, length: float) -> list[Group]:
    """Return the rows, culprits first. `length`: when all that had not ended is cut off."""
    standings = {row.rank: standing_of(row, ranks) for row in rows}
    alone = len(rows) <= APART
    ordered = sorted(rows, key=lambda row: (STANDINGS.index(standings[row.rank]), row.rank))
    for by_end in (True, False):
        keys: dict[tuple[object, ...], list[Row]] = {}
        for row in ordered:
            standing = standings[row.rank]
            single = alone or (standing == "culprit" and len(ranks.culprit) <= _OWN)
            further = (row.rank,) if single else _end(row) if by_end else ()
            keys.setdefault((standing, *further), []).append(row)
        if len(keys) <= _MOST:
            break
    return [
        Group(standings[members[0].rank], tuple(members), stretches(members, length))
        for members in keys.values()
    ]


def standing_of(row: Row, ranks: Ranks) -> str:
    """Return how a rank stands in the verdict, "" if that says nothing of it."""
    if row.rank in ranks.culprit:
        return "culprit"
    if row.rank in ranks.never_started:
        return "never started"
    if row.rank in ranks.stuck:
        return "stuck"
    if row.rank in ranks.waiting:
        return "waiting"
    return "ended" if row.ended is not None or row.rank in ranks.dead else ""


def _end(row: Row) -> tuple[object, ...]:
    """Return where a rank was in the end, but for imports, which come in between."""
    last = [span for span in row.spans if span.kind != "import" and span.end is None]
    if not last and row.spans:
        last = [row.spans[-1]]
    return tuple((span.kind, span.name) for span in last)


def stretches(rows: Sequence[Row], length: float) -> tuple[Stretch, ...]:
    """Return the spans that at least half of these ranks had, up to `length`."""
    found: dict[SpanKey, list[Span]] = {}
    for row in rows:
        for key, span in _counted(row.spans):
            found.setdefault(key, []).append(span)
    common = [spans for spans in found.values() if 2 * len(spans) >= len(rows)]
    told = [_stretch(spans, length) for spans in common]
    return tuple(sorted(told, key=lambda one: (one.start, one.depth)))


def _counted(spans: Sequence[Span]) -> Iterator[tuple[SpanKey, Span]]:
    """Yield spans with what tells them from others: the second time of a step is another one."""
    times: dict[tuple[Kind, str], int] = {}
    for span in spans:
        what = (span.kind, span.name)
        times[what] = times.get(what, 0) + 1
        yield (*what, times[what]), span


def _stretch(spans: Sequence[Span], length: float) -> Stretch:
    ends = [length if span.end is None else span.end for span in spans]
    took = [end - span.start for end, span in zip(ends, spans, strict=True)]
    one = spans[0]
    return Stretch(
        one.kind,
        one.name,
        one.title,
        one.number,
        one.depth,
        start=median(span.start for span in spans),
        end=median(ends),
        open=any(span.end is None for span in spans),
        least=min(took),
        most=max(took),
    )
