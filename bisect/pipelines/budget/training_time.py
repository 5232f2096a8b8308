"""How long a training will take, from the steps that were measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ..generating.words import counted, duration


@dataclass(frozen=True)
class TrainingTime:
    """Seconds of a step (the median of those measured but the first), and of the whole."""

    step: float
    steps: int  # of the whole training
    measured: int  # steps that were

    @property
    def whole(self) -> float:
        """Seconds of all steps."""
        return self.step * self.steps


def training_time(
    seconds: Sequence[float], *, examples: int, epochs: int, batch: int
) -> TrainingTime | None:
    """Return what to expect of `epochs` passes over `examples`, `batch` of them a step on all ranks
    together; None if no step was measured.

    The first step is left out where there are others: it makes the optimizer's state and warms up.
    """
    if not seconds:
        return None
    later = seconds[1:] or seconds
    steps = epochs * max(1, examples // batch)
    return TrainingTime(statistics.median(later), steps, len(later))


def time_line(time: TrainingTime) -> str:
    """Return it in words: "14,055 steps at 4.5 s: 17.6 h"."""
    hours = time.whole / 3600
    whole = f"{hours:.1f} h" if hours >= 1 else duration(time.whole)
    told = counted(time.measured, "step")
    return f"{time.steps:,} steps at {duration(time.step)} ({told} measured): {whole}"
