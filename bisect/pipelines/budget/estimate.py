"""A budget for a plan: a dry run, what ranks share, and what is held beside it.

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .budget import Budget, Free
from .dry_run import CPU_BLOCK, GPU_BLOCK, dry_run
from .plan import TrainingPlan
from .sharing import overhead, shared


def estimate(config: Any, plan: TrainingPlan, free: Free, on_gpu: bool) -> Budget:
    """Return the budget of one rank. Raises what the model raises where it cannot run dry."""
    held = shared(dry_run(config, plan, GPU_BLOCK if on_gpu else CPU_BLOCK), plan)
    return Budget(plan, free, held, overhead(held, plan, on_gpu))


def with_other_activations(config: Any, budget: Budget, on_gpu: bool) -> Budget:
    """Return the budget with what activations take if gradient checkpointing is turned round."""
    other = replace(budget.plan, gradient_checkpointing=not budget.plan.gradient_checkpointing)
    found = estimate(config, other, budget.free, on_gpu)
    return replace(budget, other_activations=found.held.activations)
