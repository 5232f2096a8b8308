"""Answers for a search where one start without a hang proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from ..facts import Result, Setting
from .asking import Ask, Choice
from .confidence import fisher
from .found import Starts
from .record import Record

# How unlikely by chance the clean starts must be with which a setting passes for now; and by how
# much more for each setting that hung and is no safer. Of 0.05 to 0.4, and of 0.5 to 1, these took
# the fewest starts in benchmarks/flaky_search.py.
DOUBT = 0.2
_STRICTER = 0.9
_CRASHES = 3  # from so many on a setting may be said to crash


class InDoubt:
    """Answers "hang" for certain, and "pass" for now: after few clean starts.

    A setting that hung once hangs, and so does every setting that is no safer. Whoever was wrong
    about a pass finds out by a hang later, and asks again, more strictly.
    """

    def __init__(self, record: Record, choices: Sequence[Choice], without: Starts) -> None:
        self._record, self._without = record, without
        self._values = {choice.name: choice.values for choice in choices}
        self._doubt = DOUBT
        self._passing: list[Setting] = []  # for now

    def answer(self, ask: Ask) -> Result | None:
        """Return what comes of a setting, by new starts as far as they are needed; None: stop."""
        hung = len(self._record.hung)
        result = self._started(ask, self._doubt)
        if result == "pass" and ask.setting not in self._passing:
            self._passing.append(ask.setting)
        if len(self._record.hung) > hung and not self._looked_above(ask.setting):
            return None
        return result

    def _started(self, ask: Ask, doubt: float) -> Result | None:
        clean = needed(self._without, doubt)
        results = self._record.results(ask.setting)
        while not self.hangs(ask.setting):
            if ends_otherwise(results):
                return "other"
            if results.count("pass") >= clean:
                return "pass"
            why = f"{ask.why} (clean start {results.count('pass') + 1} of {clean})"
            if self._record.start(replace(ask, why=why)) is None:
                return None
        return "hang"

    def _looked_above(self, setting: Setting) -> bool:
        """Start the next safer setting that passes for now again; return False to stop.

        The more hangs that is no safer than it, the likelier it hangs as well. To find that out
        late is dear: all that is no safer would be searched in vain.
        """
        safer = [one for one in self._passing if self._no_safer(setting, one)]
        safer = [one for one in safer if not self.hangs(one)]
        if not safer:
            return True
        least = min(safer, key=len)
        hung = sum(self._no_safer(one, least) for one in self._record.hung)
        ask = Ask(least, "does it pass, now that so much hangs?")
        return self._started(ask, self._doubt * _STRICTER**hung) is not None

    def be_stricter(self) -> None:
        """Halve the doubt: a setting that passed for now is asked for more clean starts."""
        self._doubt /= 2

    def hangs(self, setting: Setting) -> bool:
        """Return whether this setting hung, or one that is safer."""
        return any(self._no_safer(setting, hung) for hung in self._record.hung)

    def best(self) -> Setting:
        """Return the setting with the most clean starts, of these the one with the fewest toggles.

        None that hung, or that is no safer than one that did. Empty if there is none.
        """
        settings = [one.setting for one in self._record.tried if not self.hangs(one.setting)]

        def clean(setting: Setting) -> tuple[int, int]:
            return self._record.results(setting).count("pass"), -len(setting)

        best = max(settings, key=clean, default={})
        return best if clean(best)[0] else {}

    def _no_safer(self, one: Setting, other: Setting) -> bool:
        return all(
            name in other and values.index(one[name]) <= values.index(other[name])
            for name, values in self._values.items()
            if name in one
        )


def ends_otherwise(results: Sequence[Result]) -> bool:
    """Return whether a setting neither hangs nor passes: most starts, and three of them, crash."""
    crashes = results.count("other")
    return crashes >= _CRASHES and crashes > results.count("pass")


@cache
def needed(without: Starts, level: float) -> int:
    """Return how many clean starts against these make Fisher's exact p-value at most `level`."""

    def enough(clean: int) -> bool:
        return fisher(0, clean, without.hangs, without.starts) <= level

    most = 1
    while not enough(most):
        most *= 2
    too_few = most // 2
    while most - too_few > 1:
        middle = (most + too_few) // 2
        too_few, most = (too_few, middle) if enough(middle) else (middle, most)
    return most
