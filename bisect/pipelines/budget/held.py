"""What a training holds in memory, by what it is for. Facts only; all sizes are bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Held:
    """The most that each kind takes on one rank, and what of it is held at the peak.

    Gradients are freed after each step of the optimizer, so at the peak there may be none.
    """

    weights: Mapping[str, int]  # by dtype, LoRA's left out; tied ones are counted once
    lora: int = 0
    trained: int = 0  # numbers that are trained
    gradients: int = 0
    optimizer: int = 0
    buffers: int = 0
    peak: int = 0  # of everything, on this rank
    gradients_at_peak: int = 0
    optimizer_at_peak: int = 0
    moment: str = ""  # "in forward", "in backward"
    placed: Mapping[str, int] = field(default_factory=dict)  # weights by device, where several

    @property
    def all_weights(self) -> int:
        """Weights of every dtype."""
        return sum(self.weights.values())

    @property
    def activations(self) -> int:
        """What the peak holds beside weights, gradients and optimizer state: activations, and what
        an operator needs for a moment.
        """
        known = self.all_weights + self.lora + self.buffers
        return self.peak - known - self.gradients_at_peak - self.optimizer_at_peak


@dataclass(frozen=True)
class Overhead:
    """What is held beside tensors of the model."""

    ddp_buckets: int = 0
    workspace: int = 0  # cuBLAS

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """What it is made of, by name."""
        return ("DDP's buckets", self.ddp_buckets), ("cuBLAS", self.workspace)

    @property
    def whole(self) -> int:
        """All of it."""
        return self.ddp_buckets + self.workspace
