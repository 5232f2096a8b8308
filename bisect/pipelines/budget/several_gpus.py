"""A model that is too large for one GPU, divided over several by device_map="auto"."""

from __future__ import annotations

from collections.abc import Sequence

from ..generating.words import GB
from .budget import Budget


def max_memory(budget: Budget, free: Sequence[int]) -> tuple[str, ...] | None:
    """Return the --max-memory of GPUs that have so many bytes free, None if they cannot hold it.

    max_memory limits weights alone. So each GPU keeps room for all activations, which pass from one
    to the next, and for its share of what belongs to its weights: adapters, gradients, optimizer.
    """
    held = budget.held
    weights = held.all_weights
    kept = weights + held.lora + held.gradients + held.optimizer
    aside = held.activations + budget.overhead.whole
    limits = [max(0, one - aside) * weights // kept for one in free]
    if sum(limits) < weights:
        return None
    # Rounded down: what is told must fit.
    return tuple(f"{gpu}={limit * 10 // GB / 10:g}GiB" for gpu, limit in enumerate(limits))
