"""After the start: whether steps of training still come, as ranks leave it in memory.

No rank reports any more then, and none is looked at: a pause of an evaluation or a checkpoint
may be long. Only where no rank has done a step for TIMES as long as ever before is it time for a
look; where that shows work, for a longer pause.

A search for what avoids a hang that came late asks for more: whether ranks are past the step at
which it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..evidence.ring_reader import Pulse

TIMES = 10.0  # times the longest pause so far
PAST_STEPS = 5  # steps beyond the one in question, after which ranks are past it ...
PAST_SECONDS = 60.0  # ... or one step more, and so long


class TrainingPulse:
    """The last step of any rank, and how long the next one may take."""

    def __init__(self, least: float) -> None:
        """A pause of up to `least` seconds is never too long."""
        self.at = 0.0  # when the last step ended (monotonic)
        self._since = 0.0  # the same, or when the job could go on
        self.longest = 0.0  # seconds
        self.steps = 0  # of the rank that has done most
        self.patience = 0.0  # seconds
        self._least = least
        self._is_known = False

    def hear(self, pulses: Iterable[Pulse | None]) -> bool:
        """Take the pulses of all ranks; return whether a step has come since the last time."""
        known = list(pulses)
        self._is_known = bool(known) and all(one and one.longest > 0.0 for one in known)
        told = [one for one in known if one is not None]
        at = max((one.at for one in told), default=0.0)
        self.longest = max((one.longest for one in told), default=0.0)
        self.steps = max((one.steps for one in told), default=0)
        if at <= self.at:
            return False
        self.at = self._since = at
        self.patience = max(self._least, TIMES * self.longest)
        return True

    def has_stopped(self, now: float) -> bool:
        """Return whether no step has come for much longer than ever before."""
        return self._is_known and now > self._since + self.patience

    def begin_anew(self, now: float) -> None:
        """The job was kept from running until `now`."""
        self._since = max(self._since, now)

    def wait_longer(self) -> None:
        """It was at work: wait twice as long for a step."""
        self.patience *= 2


class PastStep:
    """Whether all ranks are past a training step at which a job has hung before."""

    def __init__(self, step: int) -> None:
        """`step` counts those after the first ones, as Pulse.steps does."""
        self._step = step
        self._since: float | None = None  # when all were first seen beyond it (monotonic)

    def is_reached(self, done: Sequence[int | None], now: float) -> bool:
        """Take the steps that each rank has done, None for one of which nothing is known; return
        whether all are past it: by some steps, or by one where a step takes long.
        """
        known = [steps for steps in done if steps is not None]
        if not known or len(known) < len(done) or min(known) <= self._step:
            return False
        self._since = now if self._since is None else self._since
        return min(known) >= self._step + PAST_STEPS or now >= self._since + PAST_SECONDS
