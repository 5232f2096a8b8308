"""The way from a job that hangs to its smallest change: what is asked, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

from .asking import Choice, Steps
from .found import Found
from .harmful import Rest, harmful
from .proof import companions, proven
from .sets import Names, Sets
from .smallest import Holds, smallest
from .walking_back import walked_back


@dataclass(frozen=True)
class Order:
    """The remedies in the order of preference, and how many of the first are advised."""

    choices: tuple[Choice, ...]
    likely: int

    def without(self, names: Names) -> Order:
        """Return the order without these."""
        left = tuple(choice for choice in self.choices if choice.name not in names)
        advised = sum(choice.name not in names for choice in self.choices[: self.likely])
        return Order(left, advised)


def ordered(choices: Sequence[Choice], likely: Sequence[str]) -> Order:
    """Return `choices` with those that are likely first, in that order; unknown names pass."""
    by_name = {choice.name: choice for choice in choices}
    first = [by_name[name] for name in dict.fromkeys(likely) if name in by_name]
    rest = [choice for choice in choices if choice not in first]
    return Order((*first, *rest), len(first))


def plan(order: Order) -> Steps[Found]:
    """Return the smallest change that passes, each of its values walked back; or why there is none.

    Before any search, the job as it is run must hang, and with all toggles at their safest it must
    pass. Where that ends otherwise, the toggles that do the harm are found and left out.
    """
    sets = Sets(order.choices)
    as_run = yield from sets.result((), "as you run it")
    if as_run != "hang":
        return Found("passes" if as_run == "pass" else "ends otherwise")
    everything = frozenset(sets.choices)
    all_safe = yield from sets.result(everything, "everything at its safest")
    if all_safe == "hang":
        return Found("not avoided")
    guess = yield from _alone(sets, order)
    rest = Rest(frozenset(), "pass")
    if all_safe == "other":
        rest = yield from harmful(sets)
    if rest.result != "pass":
        return Found("harmed", harmful=sets.ordered(rest.harmful))
    names = guess or (yield from _by_halves(sets, order.without(rest.harmful)))
    return (yield from _answer(sets, names, rest.harmful))


def _answer(sets: Sets, passing: Names, harm: Names) -> Steps[Found]:
    names, proof = yield from proven(sets, passing)
    change = yield from walked_back([sets.choices[name] for name in sets.ordered(names)])
    return Found(
        "found",
        change=change,
        proof=proof,
        companions=sets.ordered(companions(sets, names) & set(change)),
        harmful=sets.ordered(harm),
    )


def _alone(sets: Sets, order: Order) -> Steps[Names | None]:
    """Return the first of the likely ones that is enough alone, as far as few trials tell."""
    few = int(log2(max(2, len(order.choices))))
    for choice in order.choices[: min(order.likely, few)]:
        if (yield from sets.result({choice.name}, f"likely: {choice.name} alone")) == "pass":
            return frozenset({choice.name})
    return None


def _by_halves(sets: Sets, order: Order) -> Steps[Names]:
    names = [choice.name for choice in order.choices]
    first = order.likely if order.likely > 1 else 0
    return (yield from smallest(names, _passes(sets), first))


def _passes(sets: Sets) -> Holds:
    def passes(names: Names) -> Steps[bool]:
        why = f"are these {len(names)} of {len(sets.choices)} enough?"
        return (yield from sets.result(names, why)) == "pass"

    return passes
