"""The smallest of the sets of which something holds, found by halves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .asking import Steps

# Whether it holds of a set of names.
Holds = Callable[[frozenset[str]], Steps[bool]]


def smallest(order: Sequence[str], holds: Holds, first: int = 0) -> Steps[frozenset[str]]:
    """Return a set of which it holds; it is known to hold of all of `order`, and not of none.

    The set is as early in `order` as can be. Where it holds of whatever contains a set of which it
    holds, no smaller one does, and each name found costs at most log2(n) + 2 questions. Elsewhere
    the set may be too large, but it holds of it.

    `first`: how many names to try at first, 0 for half of them.
    """
    found: frozenset[str] = frozenset()
    left = tuple(order)
    # Always: it holds of `found` and `left` together.
    while left and not (found and (yield from holds(found))):
        count = yield from _fewest(found, left, holds, min(first, len(left) - 1))
        first = 0
        found |= {left[count - 1]}
        left = left[: count - 1]
    return found


def _fewest(found: frozenset[str], left: tuple[str, ...], holds: Holds, first: int) -> Steps[int]:
    """Return for how many of `left`, from the start, it holds while for one less it does not."""
    too_few, enough = 0, len(left)
    while enough - too_few > 1:
        middle = first or (too_few + enough) // 2
        first = 0
        if (yield from holds(found.union(left[:middle]))):
            enough = middle
        else:
            too_few = middle
    return enough
