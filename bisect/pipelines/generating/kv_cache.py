"""How much memory the keys and values of past tokens take, from how a model lays them out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class CacheLayer:
    """What one layer keeps for one sequence, in numbers (not bytes)."""

    per_token: float
    constant: float = 0.0  # a recurrent state, whatever the length
    window: int | None = None  # past so many tokens nothing more is kept; None: all of them


@dataclass(frozen=True)
class CacheLayout:
    """What all layers keep, each number in `number_bytes` bytes (2 for bf16 and fp16)."""

    layers: tuple[CacheLayer, ...]
    number_bytes: int

    def bytes(self, batch: int, tokens: int) -> int:
        """Return what `batch` sequences of `tokens` tokens take, prompt and answer together."""
        numbers = sum(
            layer.constant + layer.per_token * _kept(layer.window, tokens) for layer in self.layers
        )
        return round(batch * numbers * self.number_bytes)


def layer_from(few: Mapping[int, int], window: int | None) -> CacheLayer:
    """Return a layer of which it is known how many numbers it keeps at two lengths (`few`, by
    tokens), both shorter than its window. Raises ValueError for one length.
    """
    (short, at_short), (long, at_long) = sorted(few.items())
    slope = (at_long - at_short) / (long - short)
    return CacheLayer(slope, at_short - slope * short, window)


def _kept(window: int | None, tokens: int) -> int:
    # The new token is compared with itself as well: a window of 4096 keeps 4095 that are past.
    return tokens if window is None else min(tokens, max(0, window - 1))
