"""Which steps took another time, by the ranks that did."""

from __future__ import annotations

from collections.abc import Mapping

from ..kept.timeline import Timeline
from .found import TimeDifference, Took
from .noise import same_time
from .taken import Key, Taken, taken

_MUCH = 0.5  # of the largest difference: a rank with as much belongs to those named


def time_differences(
    a: Timeline, b: Timeline, ended_well: tuple[bool, bool]
) -> tuple[list[TimeDifference], int]:
    """Return what differs, that first at which one of the two had stopped, then the largest
    difference; below each step what differs inside it. And how many steps are the same.

    `ended_well`: whether each of the two came to its end. What a start that did not never came to
    tells nothing more.
    """
    if not a.rows or not b.rows:
        return [], 0
    ones, others = taken(a), taken(b)
    found: dict[Key, TimeDifference] = {}
    same = 0
    for key in dict.fromkeys((*ones, *others)):
        one, other = ones.get(key), others.get(key)
        if (one is None and not ended_well[0]) or (other is None and not ended_well[1]):
            continue
        difference = _difference(key, one, other)
        if difference is not None:
            found[key] = difference
        elif len(key) == 1:
            same += 1
    return [found[key] for key in _ordered(found)], same


def _difference(key: Key, a: Taken | None, b: Taken | None) -> TimeDifference | None:
    known = b or a
    assert known is not None
    one, other = _took(a), _took(b)
    if _is_same(one, other) or (len(key) > 1 and not (one.was_begun and other.was_begun)):
        return None  # of what lies in a step that the other took otherwise, the step tells
    return TimeDifference(
        title=known.title,
        number=known.number if len(key) == 1 else None,
        depth=min(len(key) - 1, 1),
        a=one,
        b=other,
        ranks=_who(a, b),
        seconds=(other.unended or other.seconds or 0.0) - (one.unended or one.seconds or 0.0),
    )


def _is_same(one: Took, other: Took) -> bool:
    if one.stopped or other.stopped:
        return bool(one.stopped) == bool(other.stopped)
    return same_time(one.seconds or 0.0, other.seconds or 0.0)


def _took(one: Taken | None) -> Took:
    if one is None:
        return Took(None)
    return Took(one.longest, max(one.unended.values(), default=None), tuple(sorted(one.unended)))


def _who(a: Taken | None, b: Taken | None) -> tuple[int, ...]:
    """Return the ranks that differ most; none where all do, or where they cannot be compared."""
    if a is None or b is None:
        return ()
    common = a.took.keys() & b.took.keys()
    by_rank = {rank: abs(a.took[rank] - b.took[rank]) for rank in common}
    much = _MUCH * max(by_rank.values(), default=0.0)
    who = sorted(rank for rank, seconds in by_rank.items() if seconds >= much)
    return () if len(who) == len(by_rank) else tuple(who)


def _ordered(found: Mapping[Key, TimeDifference]) -> list[Key]:
    """Return the keys: steps by what they tell, and after each what lies in it."""
    weights: dict[str, tuple[bool, float]] = {}
    for key, one in found.items():
        stopped = len(key) == 1 and bool(one.a.stopped or one.b.stopped)
        weights[key[0]] = max(weights.get(key[0], (False, 0.0)), (stopped, abs(one.seconds)))
    steps = sorted(weights, key=lambda step: weights[step], reverse=True)
    return [key for step in steps for key in found if key[0] == step]
