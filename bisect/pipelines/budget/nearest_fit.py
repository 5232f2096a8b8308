"""The nearest setting that fits: what changes least about the training is tried first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from .budget import Budget
from .plan import TrainingPlan, precision
from .sharing import STAGES

SHORTEST, LOWEST_RANK = 128, 8
MOST_TRIED = 24  # budgets; each is a dry run


@dataclass(frozen=True)
class Nearest:
    """A plan that fits, and what is to be changed for it: ("--micro-batch 1", ...)."""

    budget: Budget
    changes: tuple[str, ...]


def nearest_fit(plan: TrainingPlan, estimate: Callable[[TrainingPlan], Budget]) -> Nearest | None:
    """Return the first plan that fits, None if none of those tried does."""
    for number, candidate in enumerate(candidates(plan)):
        if number >= MOST_TRIED:
            break
        budget = estimate(candidate)
        if budget.fits:
            return Nearest(budget, changes(plan, candidate))
    return None


def candidates(plan: TrainingPlan) -> Iterator[TrainingPlan]:
    """Yield plans from the least change on: first what gives the same result, then what gives
    another one. Each group rests on all that the one before it could save.
    """
    tried = plan
    if not plan.gradient_checkpointing:
        tried = replace(plan, gradient_checkpointing=True)
        yield tried
    for smaller in (plan, tried) if tried != plan else (plan,):
        yield from _smaller_batches(smaller)
    tried = _smallest_batch(tried)
    if plan.ranks > 1:
        for stage in STAGES:
            yield replace(tried, zero_stage=max(stage, plan.zero_stage))
    if tried.weights_dtype == "float32":
        tried = replace(tried, precision=precision("bf16"))
        yield tried
    for rank in _halves(tried.lora_rank, LOWEST_RANK):
        tried = replace(tried, lora_rank=rank)
        yield tried
    for length in _halves(tried.length, SHORTEST):
        tried = replace(tried, length=length)
        yield tried
    yield from _others_weights(tried)


def _others_weights(plan: TrainingPlan) -> Iterator[TrainingPlan]:
    if not plan.lora_rank:
        plan = replace(plan, lora_rank=LOWEST_RANK)
        yield plan
    if plan.quantization == "off":
        yield replace(plan, quantization="8bit")
        yield replace(plan, quantization="4bit")


def _smaller_batches(plan: TrainingPlan) -> Iterator[TrainingPlan]:
    """Yield the plan with smaller batches, each with as many examples a step of the optimizer."""
    whole = plan.effective_batch
    for size in range(plan.batch_size - 1, 0, -1):
        if whole % size == 0:
            yield replace(plan, batch_size=size, accumulation=whole // size)


def _smallest_batch(plan: TrainingPlan) -> TrainingPlan:
    return replace(plan, batch_size=1, accumulation=plan.effective_batch)


def _halves(value: int, least: int) -> Iterator[int]:
    while value // 2 >= least:
        value //= 2
        yield value


def changes(plan: TrainingPlan, other: TrainingPlan) -> tuple[str, ...]:
    """Return what makes the one plan the other, as arguments of the pipeline."""
    before, after = _arguments(plan), _arguments(other)
    return tuple(f"{name} {after[name]}" for name in after if after[name] != before[name])


def _arguments(plan: TrainingPlan) -> dict[str, str | int]:
    """Return what a plan is in arguments, as far as candidates differ in it."""
    return {
        "--gradient-checkpointing": "on" if plan.gradient_checkpointing else "off",
        "--micro-batch": plan.batch_size,
        "DeepSpeed ZeRO stage": plan.zero_stage,
        "--precision": plan.precision.name,
        "--lora-rank": plan.lora_rank,
        "--sequence-length": plan.length,
        "--quantization": plan.quantization,
    }
