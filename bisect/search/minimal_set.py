"""Sets of toggles, each toggle at its safest: the smallest set that passes, found by halves; the
toggles that do harm; the proof that no smaller set passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, combinations, islice
from math import log2

from ..base.lazy_dataclass import dataclass
from ..base.verdict_facts import Result
from .trial_results import Ask, Choice, Proof, Steps, safest_setting

Names = frozenset[str]


class ToggleSets:
    """The results of all sets that were asked for; each is asked once."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        self.choices: dict[str, Choice] = {choice.name: choice for choice in choices}
        self.results: dict[Names, Result] = {}
        self.safer_hung = False  # a set hung although a part of it passed

    def result(self, names: Iterable[str], why: str) -> Steps[Result]:
        """Return what comes of these toggles at their safest, the others as the user runs them."""
        key = frozenset(names)
        if key not in self.results:
            result = yield Ask(safest_setting(self.choices, key), why)
            self.safer_hung |= self._is_surprising(key, result)
            self.results[key] = result
        return self.results[key]

    def ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return `names` in the order of preference."""
        some = frozenset(names)
        return tuple(name for name in self.choices if name in some)

    def below_a_hang(self, names: Names) -> bool:
        """Return whether a set that hangs has all of `names`."""
        return any(names <= key for key, result in self.results.items() if result == "hang")

    def monotone_limit(self, size: int) -> int:
        """Return how many trials an answer of `size` may take where no safer value brings a hang
        about: 2·k·log2(n) + 2·k + 4 for k of n toggles.
        """
        return int(2 * size * log2(max(2, len(self.choices)))) + 2 * size + 4

    def limit(self) -> int:
        """Return how many trials any answer may take: n² + 3n for n toggles.

        That is the bound of delta debugging: Zeller and Hildebrandt, "Simplifying and isolating
        failure-inducing input", IEEE Transactions on Software Engineering 28 (2002), section 3.
        """
        return len(self.choices) ** 2 + 3 * len(self.choices)

    def _is_surprising(self, names: Names, result: Result) -> bool:
        """Return whether this result is one that a safer value brought about."""
        if result == "hang":
            return any(key < names for key, known in self.results.items() if known == "pass")
        if result == "pass":
            return any(names < key for key, known in self.results.items() if known == "hang")
        return False


# Whether it holds of a set of names.
Holds = Callable[[frozenset[str]], Steps[bool]]


def find_smallest(order: Sequence[str], holds: Holds, first: int = 0) -> Steps[frozenset[str]]:
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
        count = yield from _find_shortest_prefix(found, left, holds, min(first, len(left) - 1))
        first = 0
        found |= {left[count - 1]}
        left = left[: count - 1]
    return found


def _find_shortest_prefix(
    found: frozenset[str], left: tuple[str, ...], holds: Holds, first: int
) -> Steps[int]:
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


@dataclass(frozen=True)
class HarmfulToggles:
    """The toggles whose safe values are taken back, and what comes of all the others."""

    harmful: Names
    result: Result


def find_harmful(sets: ToggleSets) -> Steps[HarmfulToggles]:
    """Return the fewest toggles to take back so that the others at their safest pass.

    If no way to pass is found: the fewest so that the others hang as the job does ("hang").
    All toggles at their safest end otherwise; as it is run the job hangs.
    """
    everything = frozenset(sets.choices)
    passing = next((key for key, result in sets.results.items() if result == "pass"), None)
    if passing is None:
        harm = yield from _find_fewest_harmful(sets, everything, everything, ("pass", "hang"))
        if sets.results[everything - harm] == "pass":
            return HarmfulToggles(harm, "pass")
        passing = yield from _exchange_harmful(sets, harm)
        if passing is None:
            return HarmfulToggles(harm, "hang")
    harm = yield from _find_fewest_harmful(sets, everything, everything - passing, ("pass",))
    return HarmfulToggles(harm, "pass")


def _find_fewest_harmful(
    sets: ToggleSets, start: Names, candidates: Names, wanted: tuple[Result, ...]
) -> Steps[Names]:
    """Return the fewest of `candidates` to take back from `start` for one of the wanted results.

    Taking back all of them gives it. By halves, the least preferred first.
    """

    def holds(taken: Names) -> Steps[bool]:
        why = f"it ended otherwise: {_format_names(sets, taken)} taken back"
        return (yield from sets.result(start - taken, why)) in wanted

    taken = yield from find_smallest(sets.ordered(candidates)[::-1], holds)
    return (yield from _leave_out_harmless(sets, taken, holds))


def _leave_out_harmless(sets: ToggleSets, taken: Names, holds: Holds) -> Steps[Names]:
    for name in sets.ordered(taken):
        if len(taken) > 1 and (yield from holds(taken - {name})):
            taken -= {name}
    return taken


def _exchange_harmful(sets: ToggleSets, harm: Names) -> Steps[Names | None]:
    """Return a set that passes, with some of `harm` in it; None if none was found.

    Without `harm` it hangs: some of that is needed, and does harm only beside others. So some of
    it is kept, and the others are looked for.
    """
    rest = frozenset(sets.choices) - harm
    for kept in _nonempty_parts(sets.ordered(harm)):
        if len(sets.results) > sets.limit() // 2:
            return None
        why = f"it ended otherwise: {_format_names(sets, kept)} kept"
        if (yield from sets.result(kept, why)) == "other":
            continue
        others: Names = frozenset()
        if (yield from sets.result(rest | kept, why)) == "other":
            others = yield from _find_fewest_harmful(sets, rest | kept, rest, ("pass", "hang"))
        if sets.results[(rest - others) | kept] == "pass":
            return (rest - others) | kept
    return None


def _nonempty_parts(names: tuple[str, ...]) -> Iterator[Names]:
    """Yield all parts of `names` but the empty one, the smallest first."""
    sizes = range(1, len(names) + 1)
    return map(frozenset, chain.from_iterable(combinations(names, size) for size in sizes))


def _format_names(sets: ToggleSets, names: Names) -> str:
    few = sets.ordered(names)
    return ", ".join(few) if len(few) <= 3 else f"{len(few)} toggles"


# More sets than this are not looked through: 2^12, an answer of twelve toggles.
_MOST_SETS = 4096


def prove_minimal(sets: ToggleSets, names: Names) -> Steps[tuple[Names, Proof]]:
    """Return the smallest part of `names` that passes, and how well it is known to be the smallest.

    `names` passes. Each toggle is left out once; then, as far as the limits on trials go, every
    other part is tried, the smallest first, before all those that are in no set that hung.
    """
    while True:
        smaller = yield from _without_one(sets, names)
        proof: Proof = "each"
        if smaller is None:
            smaller, proof = yield from _find_part(sets, names)
        if smaller is None:
            return names, proof
        names = smaller


def find_companions(sets: ToggleSets, names: Names) -> frozenset[str]:
    """Return those of `names` without which it ends otherwise, instead of hanging."""
    return frozenset(name for name in names if sets.results.get(names - {name}) == "other")


def _without_one(sets: ToggleSets, names: Names) -> Steps[Names | None]:
    """Return `names` without one, if that passes; the last in the order of preference first."""
    if len(names) == 1:
        return None  # the job as it is run hangs
    for name in reversed([name for name in sets.choices if name in names]):
        why = f"can {name} be left out?"
        if (yield from sets.result(names - {name}, why)) == "pass":
            return names - {name}
    return None


def _find_part(sets: ToggleSets, names: Names) -> Steps[tuple[Names | None, Proof]]:
    """Return a part of `names` that passes, None if none does as far as was looked, and the proof.

    A part of a set that hung can pass only where a safer value brings a hang about.
    """
    found, to_the_end = yield from _find_passing(
        sets, names, _parts_in_no_hang(sets, names), sets.limit()
    )
    if found is not None or not to_the_end:
        return found, "each"
    limit = sets.monotone_limit(len(names))
    found, to_the_end = yield from _find_passing(sets, names, _smaller_parts(names), limit)
    return found, "every" if to_the_end else "implied"


def _find_passing(
    sets: ToggleSets, names: Names, parts: Iterator[Names], limit: int
) -> Steps[tuple[Names | None, bool]]:
    """Return the first of `parts` that passes, and whether all of them were looked at.

    `limit`: how many trials there may be in all, unless a safer value was seen to hang.
    """
    looked_at = 0
    for part in islice(parts, _MOST_SETS):
        looked_at += 1
        spent = len(sets.results) >= max(limit, _MOST_SETS if sets.safer_hung else 0)
        if spent and part not in sets.results:
            return None, False
        if (yield from sets.result(part, "does a smaller change do?")) == "pass":
            return part, True
    return None, looked_at < _MOST_SETS


def _smaller_parts(names: Names) -> Iterator[Names]:
    """Yield all parts of `names` that lack two of them or more, the smallest first."""
    sizes = range(1, len(names) - 1)
    every = chain.from_iterable(combinations(sorted(names), size) for size in sizes)
    return (frozenset(part) for part in every)


def _parts_in_no_hang(sets: ToggleSets, names: Names) -> Iterator[Names]:
    """Yield those of the parts that are in no set that hung, as known when each is asked for."""
    needed = frozenset(name for name in names if sets.results.get(names - {name}) == "hang")
    loose = sorted(names - needed)
    for size in range(len(loose) - 1):
        for some in combinations(loose, size):
            part = needed.union(some)
            if part and not sets.below_a_hang(part):
                yield part
