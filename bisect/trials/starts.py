"""Start after start of one job: counted, kept, never more than was asked for, none done twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..facts import Setting, Trial
from ..report.isolation import duration

if TYPE_CHECKING:
    from .trial import Question


@dataclass(frozen=True)
class Ask:
    """What is to be started."""

    setting: Setting
    question: Question
    why: str  # which part of the search asks, for the story


# One launch. It gets its number, and the seconds it may take (None: its own limits are all).
Start = Callable[[int, Ask, float | None], Trial]


class Enough(Exception):
    """No further start: somebody interrupted, or the starts or the time asked for are used up."""

    def __init__(self, why: str, interrupted: bool = False) -> None:
        super().__init__(why)
        self.interrupted = interrupted


@dataclass(frozen=True)
class Budget:
    """How much may be spent. None: as much as it takes."""

    starts: int | None = None
    seconds: float | None = None


class Starts:
    """The starts of one isolation."""

    def __init__(
        self,
        start: Start,
        note: Callable[[], None],
        budget: Budget,
        recorded: Sequence[Trial] = (),
        stopping: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`note` is called after every trial. `recorded` are trials of an isolation that was
        interrupted: who asks for the same setting again gets them, in order. `clock` in seconds.
        """
        self.trials: list[Trial] = []
        self._start = start
        self._note = note
        self._budget = budget
        self._recorded = list(recorded)
        self._stopping = stopping or threading.Event()
        self._clock = clock
        # As if these had been made now: what was between them nobody knows any more.
        self._began = clock() - sum(trial.seconds for trial in recorded)

    @property
    def all(self) -> tuple[Trial, ...]:
        """All trials, by number; the recorded ones too that nobody has asked for again yet."""
        return tuple(sorted((*self.trials, *self._recorded), key=lambda trial: trial.number))

    def start(self, ask: Ask) -> tuple[Trial, bool]:
        """Return what came of one more start, and whether it was made only now. Raises Enough."""
        known = self._known(ask.setting)
        if known is not None:
            self.trials.append(known)
            return known, False
        left = self._left()
        trial = self._start(max((t.number for t in self.all), default=0) + 1, ask, left)
        if self._stopping.is_set():
            raise Enough("interrupted", interrupted=True)  # what it would have shown, nobody knows
        if left is not None and trial.seconds >= left and trial.result == "other":
            raise self._out_of_time()
        self.trials.append(trial)
        self._note()
        return trial, True

    def _known(self, setting: Setting) -> Trial | None:
        """Take the first recorded trial of this setting that nobody has taken yet."""
        for trial in self._recorded:
            if dict(trial.setting) == dict(setting):
                self._recorded.remove(trial)
                return trial
        return None

    def _left(self) -> float | None:
        """Return the seconds that the next start may take. Raises Enough."""
        if self._stopping.is_set():
            raise Enough("interrupted", interrupted=True)
        most = self._budget.starts
        if most is not None and len(self.all) >= most:
            raise Enough(f"--max-trials {most} is reached")
        if self._budget.seconds is None:
            return None
        left = self._budget.seconds - (self._clock() - self._began)
        if left <= 0:
            raise self._out_of_time()
        return left

    def _out_of_time(self) -> Enough:
        return Enough(f"--max-time {duration(self._budget.seconds or 0.0)} is reached")
