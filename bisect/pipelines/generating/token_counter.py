"""Counts and times each token as generate() makes it.

Imports transformers at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from transformers import StoppingCriteria


class TokenCounter(StoppingCriteria):
    """Asked by generate() after each token whether to stop: counts, tells and never stops."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        """Call tell(tokens so far) after each token."""
        self.count = 0
        self._tell = tell
        self._at: list[float] = []

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        """Return for each sequence that it goes on."""
        self.count += 1
        self._at.append(time.monotonic())
        self._tell(self.count)
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)

    @property
    def token_seconds(self) -> float:
        """How long a token takes once the prompt is read: the median, for the first ones also
        start what is started once. Raises StatisticsError below two tokens.
        """
        return statistics.median(later - earlier for earlier, later in pairwise(self._at))
