"""How long a process that watches waits before it loads more than it needs to listen: the start of
a script of the user's own needs the processors.
"""

from __future__ import annotations

import os
import select
import time
from typing import NamedTuple

_LEAST, _MOST = 5.0, 20.0  # seconds
_TICK = 0.25  # seconds between two looks for an idle processor
_IDLE_LOOKS = 2  # in a row: a rank that waits for its disk is back at once


class DelayLimits(NamedTuple):
    """In seconds: after `least` the delay ends as soon as a processor is idle, after `most` in any
    case.
    """

    least: float
    most: float


def limit_delay(stall: float, limit: float | None) -> DelayLimits:
    """Return how long to wait where the first of the clocks of a watch, --stall and --limit, runs
    out after so many seconds: a quarter of it at most.
    """
    quarter = min(stall, limit or stall) / 4
    return DelayLimits(min(_LEAST, quarter), min(_MOST, quarter))


class LoadDelay:
    """One delay before a process loads the rest of its code."""

    def __init__(self, limits: DelayLimits, since: float | None = None) -> None:
        """It ends within `limits`, of which time has passed `since` then (monotonic)."""
        self._limits = limits
        self._began = time.monotonic() if since is None else since
        self._idle_looks = 0

    def next_wait(self) -> float:
        """Return for how many seconds to wait before this is asked again, 0.0 when it is over."""
        passed = time.monotonic() - self._began
        if passed < self._limits.least:
            return self._limits.least - passed
        self._idle_looks = self._idle_looks + 1 if is_processor_idle() else 0
        if self._idle_looks >= _IDLE_LOOKS:
            return 0.0
        return max(0.0, min(_TICK, self._limits.most - passed))

    def wait_for(self, poll: select.poll) -> bool:
        """Wait to its end, or until there is something to read; return whether there is."""
        while seconds := self.next_wait():
            if poll.poll(seconds * 1000):
                return True
        return False


def is_processor_idle(loadavg: str = "/proc/loadavg") -> bool:
    """Return whether fewer threads want to run than there are processors; True if that is not told.

    The fourth field counts those of the whole machine, the one that asks among them
    (proc_loadavg(5)).
    """
    try:
        with open(loadavg, encoding="ascii") as file:
            running = int(file.read().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return True
    return running <= (os.cpu_count() or 1)
