"""Where all safe values together crash, or hang elsewhere: which of them does the harm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations

from ..facts import Result
from .asking import Steps
from .sets import Names, Sets
from .smallest import Holds, smallest


@dataclass(frozen=True)
class Rest:
    """The toggles whose safe values are taken back, and what comes of all the others."""

    harmful: Names
    result: Result


def harmful(sets: Sets) -> Steps[Rest]:
    """Return the fewest toggles to take back so that the others at their safest pass.

    If no way to pass is found: the fewest so that the others hang as the job does ("hang").
    All toggles at their safest end otherwise; as it is run the job hangs.
    """
    everything = frozenset(sets.choices)
    passing = next((key for key, result in sets.results.items() if result == "pass"), None)
    if passing is None:
        harm = yield from _fewest(sets, everything, everything, ("pass", "hang"))
        if sets.results[everything - harm] == "pass":
            return Rest(harm, "pass")
        passing = yield from _exchanged(sets, harm)
        if passing is None:
            return Rest(harm, "hang")
    harm = yield from _fewest(sets, everything, everything - passing, ("pass",))
    return Rest(harm, "pass")


def _fewest(
    sets: Sets, start: Names, candidates: Names, wanted: tuple[Result, ...]
) -> Steps[Names]:
    """Return the fewest of `candidates` to take back from `start` for one of the wanted results.

    Taking back all of them gives it. By halves, the least preferred first.
    """

    def holds(taken: Names) -> Steps[bool]:
        why = f"it ended otherwise: {_shown(sets, taken)} taken back"
        return (yield from sets.result(start - taken, why)) in wanted

    taken = yield from smallest(sets.ordered(candidates)[::-1], holds)
    return (yield from _each_needed(sets, taken, holds))


def _each_needed(sets: Sets, taken: Names, holds: Holds) -> Steps[Names]:
    for name in sets.ordered(taken):
        if len(taken) > 1 and (yield from holds(taken - {name})):
            taken -= {name}
    return taken


def _exchanged(sets: Sets, harm: Names) -> Steps[Names | None]:
    """Return a set that passes, with some of `harm` in it; None if none was found.

    Without `harm` it hangs: some of that is needed, and does harm only beside others. So some of
    it is kept, and the others are looked for.
    """
    rest = frozenset(sets.choices) - harm
    for kept in _parts(sets.ordered(harm)):
        if len(sets.results) > sets.limit() // 2:
            return None
        why = f"it ended otherwise: {_shown(sets, kept)} kept"
        if (yield from sets.result(kept, why)) == "other":
            continue
        others: Names = frozenset()
        if (yield from sets.result(rest | kept, why)) == "other":
            others = yield from _fewest(sets, rest | kept, rest, ("pass", "hang"))
        if sets.results[(rest - others) | kept] == "pass":
            return (rest - others) | kept
    return None


def _parts(names: tuple[str, ...]) -> Iterator[Names]:
    """Yield all parts of `names` but the empty one, the smallest first."""
    sizes = range(1, len(names) + 1)
    return map(frozenset, chain.from_iterable(combinations(names, size) for size in sizes))


def _shown(sets: Sets, names: Names) -> str:
    few = sets.ordered(names)
    return ", ".join(few) if len(few) <= 3 else f"{len(few)} toggles"
