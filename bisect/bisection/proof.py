"""The proof that an answer is minimal: no smaller set passes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations, islice

from .asking import Steps
from .found import Proof
from .sets import Names, Sets

# More sets than this are not looked through: 2^12, an answer of twelve toggles.
_MOST = 4096


def proven(sets: Sets, names: Names) -> Steps[tuple[Names, Proof]]:
    """Return the smallest part of `names` that passes, and how well it is known to be the smallest.

    `names` passes. Each toggle is left out once; then, as far as the limits on trials go, every
    other part is tried, the smallest first, before all those that are in no set that hung.
    """
    while True:
        smaller = yield from _without_one(sets, names)
        proof: Proof = "each"
        if smaller is None:
            smaller, proof = yield from _part(sets, names)
        if smaller is None:
            return names, proof
        names = smaller


def companions(sets: Sets, names: Names) -> frozenset[str]:
    """Return those of `names` without which it ends otherwise, instead of hanging."""
    return frozenset(name for name in names if sets.results.get(names - {name}) == "other")


def _without_one(sets: Sets, names: Names) -> Steps[Names | None]:
    """Return `names` without one, if that passes; the last in the order of preference first."""
    if len(names) == 1:
        return None  # the job as it is run hangs
    for name in reversed([name for name in sets.choices if name in names]):
        why = f"can {name} be left out?"
        if (yield from sets.result(names - {name}, why)) == "pass":
            return names - {name}
    return None


def _part(sets: Sets, names: Names) -> Steps[tuple[Names | None, Proof]]:
    """Return a part of `names` that passes, None if none does as far as was looked, and the proof.

    A part of a set that hung can pass only where a safer value brings a hang about.
    """
    found, to_the_end = yield from _passing(sets, names, _in_no_hang(sets, names), sets.limit())
    if found is not None or not to_the_end:
        return found, "each"
    limit = sets.monotone_limit(len(names))
    found, to_the_end = yield from _passing(sets, names, _parts(names), limit)
    return found, "every" if to_the_end else "implied"


def _passing(
    sets: Sets, names: Names, parts: Iterator[Names], limit: int
) -> Steps[tuple[Names | None, bool]]:
    """Return the first of `parts` that passes, and whether all of them were looked at.

    `limit`: how many trials there may be in all, unless a safer value was seen to hang.
    """
    looked_at = 0
    for part in islice(parts, _MOST):
        looked_at += 1
        spent = len(sets.results) >= max(limit, _MOST if sets.safer_hung else 0)
        if spent and part not in sets.results:
            return None, False
        if (yield from sets.result(part, "does a smaller change do?")) == "pass":
            return part, True
    return None, looked_at < _MOST


def _parts(names: Names) -> Iterator[Names]:
    """Yield all parts of `names` that lack two of them or more, the smallest first."""
    sizes = range(1, len(names) - 1)
    every = chain.from_iterable(combinations(sorted(names), size) for size in sizes)
    return (frozenset(part) for part in every)


def _in_no_hang(sets: Sets, names: Names) -> Iterator[Names]:
    """Yield those of the parts that are in no set that hung, as known when each is asked for."""
    needed = frozenset(name for name in names if sets.results.get(names - {name}) == "hang")
    loose = sorted(names - needed)
    for size in range(len(loose) - 1):
        for some in combinations(loose, size):
            part = needed.union(some)
            if part and not sets.below_a_hang(part):
                yield part
