"""The record of a search: the one gate to the starts of the job."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from ..facts import Result, Setting
from .asking import Ask, Choice, Steps, Test, Tried

T = TypeVar("T")


class Record:
    """All that was tried. What was recorded of an interrupted search comes before new starts."""

    def __init__(
        self,
        test: Test,
        recorded: Iterable[tuple[Setting, Result]],
        same: Callable[[Setting], Hashable],
        max_trials: int | None,
    ) -> None:
        self._test, self._same, self._max_trials = test, same, max_trials
        self._recorded: dict[Hashable, deque[Result]] = defaultdict(deque)
        for setting, result in recorded:
            self._recorded[same(setting)].append(result)
        self._results: dict[Hashable, list[Result]] = defaultdict(list)
        self.tried: list[Tried] = []
        self.hung: list[Setting] = []  # each setting once

    def answer(self, ask: Ask) -> Result | None:
        """Return what is known of the setting, else what comes of a start; None: stop."""
        known = self._results[self._same(ask.setting)]
        return known[0] if known and not ask.again else self.start(ask)

    def start(self, ask: Ask) -> Result | None:
        """Return what comes of a start, whatever is known of the setting; None: stop."""
        if self._max_trials is not None and len(self.tried) >= self._max_trials:
            return None
        key = self._same(ask.setting)
        recorded = self._recorded[key]
        result = recorded.popleft() if recorded else self._test(ask.setting, ask.why)
        if result is not None:
            if result == "hang" and "hang" not in self._results[key]:
                self.hung.append(ask.setting)
            self._results[key].append(result)
            number = len(self.tried) + 1
            self.tried.append(Tried(number, ask.setting, result, ask.why, ask.again))
        return result

    def results(self, setting: Setting) -> Sequence[Result]:
        """Return what came of every start under that setting so far."""
        return self._results[self._same(setting)]


def driven(steps: Steps[T], answer: Callable[[Ask], Result | None]) -> T | None:
    """Return what a search returns; None if a question has no answer: it is to stop."""
    try:
        ask = next(steps)
        while (result := answer(ask)) is not None:
            ask = steps.send(result)
    except StopIteration as end:
        found: T = end.value
        return found
    steps.close()
    return None


def checked(choices: Sequence[Choice], probes: Sequence[Choice]) -> None:
    """Raise ValueError for a toggle that stands twice, or has no safer value."""
    names = [choice.name for choice in (*choices, *probes)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"toggles that stand twice: {', '.join(twice)}")
    if empty := [choice.name for choice in (*choices, *probes) if not choice.values]:
        raise ValueError(f"toggles without a safer value: {', '.join(empty)}")
