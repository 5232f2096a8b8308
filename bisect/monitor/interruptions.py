"""Signals that end: is the whole job told to go, or one rank alone? Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

TOGETHER = 1.0  # seconds: a launcher that ends its ranks has signalled all of them within it


def meant_for(
    heard: Mapping[int, float], living: Collection[int], now: float
) -> Literal["nobody", "job", "one"] | None:
    """Return for whom the signals are that ranks `heard` (since when), None while it is not clear.

    A launcher, a scheduler and a terminal signal all ranks. One that alone was sent a signal ends
    by it, or its own handler does what it likes: either way it is the others that go on.
    """
    told = [heard[rank] for rank in living if rank in heard]
    if not told:
        return "nobody"
    if len(told) == len(living):
        return "job"
    if now < min(told) + TOGETHER:
        return None
    return "job" if len(told) > 1 else "one"
