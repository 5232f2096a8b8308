"""Cheap samples of a rank's family: looks are taken only where nothing stirs.

They decide nothing. A burst of a helper (W&B's core samples the machine) is no sign of life, so
what counts is the average over some seconds; what a look shows decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ..evidence.movement import stirred
from ..evidence.sample import sample
from ..facts import Sample

WINDOW = 5.0  # seconds


class Stillness:
    """The recent samples of one rank and its descendants."""

    def __init__(self) -> None:
        """No samples yet."""
        self._samples: dict[int, deque[Sample]] = {}
        self._last_stir = 0.0

    def stirred_at(self, pids: Iterable[int]) -> float:
        """Sample `pids`; return when one of them last stirred (monotonic), 0.0 for not lately."""
        lately = False
        for pid in pids:
            now = sample(pid)
            if now is None:
                self._samples.pop(pid, None)
                continue
            kept = self._samples.setdefault(pid, deque())
            if kept and stirred(kept[-1], now):
                self._last_stir = now.at
            while len(kept) > 1 and now.at - kept[1].at >= WINDOW:
                kept.popleft()
            if kept and stirred(kept[0], now):
                lately = True
            kept.append(now)
        return self._last_stir if lately else 0.0
