"""A part of a text that is a secret."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """Where in a text a secret stands."""

    start: int
    end: int
    kind: str
    # Found by its name or place. A shape, where there is one as well, tells more of its kind.
    by_place: bool = False


def settled(found: Iterable[Span], marks: Sequence[tuple[int, int]]) -> list[Span]:
    """Return spans in order that neither overlap nor touch `marks` (start and end, in order).

    Of overlapping ones what begins first stands, the longer one if both do; what remains of the
    other stands as a secret of its own, so nothing that was found is shown.
    """
    spans: list[Span] = []
    done = 0
    for span in sorted(found, key=lambda one: (one.start, -one.end, one.by_place)):
        for start, end in _without(max(span.start, done), span.end, marks):
            spans.append(Span(start, end, span.kind, span.by_place))
        done = max(done, span.end)
    return spans


def _without(start: int, end: int, marks: Sequence[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """Yield what of `start` to `end` lies outside of all `marks`."""
    for mark_start, mark_end in marks:
        if mark_end <= start or mark_start >= end:
            continue
        if start < mark_start:
            yield start, mark_start
        start = mark_end
    if start < end:
        yield start, end
