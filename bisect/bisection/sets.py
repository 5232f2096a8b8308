"""What is known of sets of toggles, each at its safest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log2

from ..facts import Result
from .asking import Ask, Choice, Steps, safest

Names = frozenset[str]


class Sets:
    """The results of all sets that were asked for; each is asked once."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        self.choices: dict[str, Choice] = {choice.name: choice for choice in choices}
        self.results: dict[Names, Result] = {}
        self.safer_hung = False  # a set hung although a part of it passed

    def result(self, names: Iterable[str], why: str) -> Steps[Result]:
        """Return what comes of these toggles at their safest, the others as the user runs them."""
        key = frozenset(names)
        if key not in self.results:
            result = yield Ask(safest(self.choices, key), why)
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
