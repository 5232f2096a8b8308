"""The budget: what is needed against what is free, and what of it is sure."""

from __future__ import annotations

from dataclasses import dataclass

from .held import Held, Overhead
from .plan import TrainingPlan


@dataclass(frozen=True)
class Free:
    """What one rank may take, in bytes. `where`: "GPU 0 NVIDIA H100", "the CPU"."""

    where: str
    free: int
    total: int


@dataclass(frozen=True)
class Budget:
    """One rank's memory under a plan. `held` None: the model cannot be run without data; `why`."""

    plan: TrainingPlan
    free: Free
    held: Held
    overhead: Overhead
    # Activations with gradient checkpointing the other way round; None: not worked out.
    other_activations: int | None = None

    @property
    def needed(self) -> int:
        """Bytes at the peak."""
        return self.held.peak + self.overhead.whole

    @property
    def margin(self) -> int:
        """Bytes that are left; below 0: that are missing."""
        return self.free.free - self.needed

    @property
    def fits(self) -> bool:
        """Whether it is all there."""
        return self.margin >= 0

    @property
    def is_hopeless(self) -> bool:
        """Whether weights, gradients and optimizer state alone are too much: no estimate."""
        held = self.held
        kept = held.all_weights + held.lora + held.optimizer
        return kept + held.gradients > self.free.free
