"""After the start: whether steps of training still come, as ranks leave it in memory.

No rank reports any more then, and none is looked at: a pause of an evaluation or a checkpoint
may be long. Only where no rank has done a step for TIMES as long as ever before is it time for a
look; where that shows work, for a longer pause.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..evidence.ring_reader import Pulse

TIMES = 10.0  # times the longest pause so far


class TrainingPulse:
    """The last step of any rank, and how long the next one may take."""

    def __init__(self, least: float) -> None:
        """A pause of up to `least` seconds is never too long."""
        self.at = 0.0  # when the last step ended (monotonic)
        self._since = 0.0  # the same, or when the job could go on
        self.longest = 0.0  # seconds
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
