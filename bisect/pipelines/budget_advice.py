"""What to change about a training that does not fit, how long one takes that does, and the memory
budget as lines of a terminal.

What changes least about the training is tried first.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ..base.lazy_dataclass import dataclass
from ..base.words import GIB, format_bytes, format_count, format_duration
from .memory_budget import ZERO_STAGES, Budget, TrainingPlan, find_precision

SHORTEST, LOWEST_RANK = 128, 8
MOST_TRIED = 24  # budgets; each is a dry run


@dataclass(frozen=True)
class NearestFit:
    """A plan that fits, and what is to be changed for it: ("--micro-batch 1", ...)."""

    budget: Budget
    changes: tuple[str, ...]


def find_nearest_fit(
    plan: TrainingPlan, estimate: Callable[[TrainingPlan], Budget]
) -> NearestFit | None:
    """Return the first plan that fits, None if none of those tried does."""
    for number, candidate in enumerate(iterate_plans(plan)):
        if number >= MOST_TRIED:
            break
        budget = estimate(candidate)
        if budget.fits:
            return NearestFit(budget, list_changes(plan, candidate))
    return None


def iterate_plans(plan: TrainingPlan) -> Iterator[TrainingPlan]:
    """Yield plans from the least change on: first what gives the same result, then what gives
    another one. Each group rests on all that the one before it could save.
    """
    tried = plan
    if not plan.gradient_checkpointing:
        tried = replace(plan, gradient_checkpointing=True)
        yield tried
    for smaller in (plan, tried) if tried != plan else (plan,):
        yield from _smaller_batches(smaller)
    tried = replace(tried, batch_size=1, accumulation=tried.effective_batch)
    if plan.ranks > 1:
        for stage in ZERO_STAGES:
            yield replace(tried, zero_stage=max(stage, plan.zero_stage))
    if tried.weights_dtype == "float32":
        tried = replace(tried, precision=find_precision("bf16"))
        yield tried
    for rank in _halves(tried.lora_rank, LOWEST_RANK):
        tried = replace(tried, lora_rank=rank)
        yield tried
    for length in _halves(tried.length, SHORTEST):
        tried = replace(tried, length=length)
        yield tried
    yield from _less_weights(tried)


def _less_weights(plan: TrainingPlan) -> Iterator[TrainingPlan]:
    if not plan.lora_rank:
        plan = replace(plan, lora_rank=LOWEST_RANK)
        yield plan
    if plan.quantization == "off":
        yield replace(plan, quantization="8bit")
        yield replace(plan, quantization="4bit")


def _smaller_batches(plan: TrainingPlan) -> Iterator[TrainingPlan]:
    """Yield the plan with smaller batches, each with as many examples a step of the optimizer."""
    whole = plan.effective_batch
    for examples in range(plan.batch_size - 1, 0, -1):
        if whole % examples == 0:
            yield replace(plan, batch_size=examples, accumulation=whole // examples)


def _halves(value: int, least: int) -> Iterator[int]:
    while value // 2 >= least:
        value //= 2
        yield value


def list_changes(plan: TrainingPlan, other: TrainingPlan) -> tuple[str, ...]:
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


def divide_over_gpus(budget: Budget, free: Sequence[int]) -> tuple[str, ...] | None:
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
    return tuple(f"{gpu}={limit * 10 // GIB / 10:g}GiB" for gpu, limit in enumerate(limits))


_WIDE = 44  # characters before the figures


def format_budget(budget: Budget) -> list[str]:
    """Return the table: what each part takes at most, and what of it there is at the peak."""
    plan, free = budget.plan, budget.free
    head = f"memory of each rank, {plan.batch_size} x {plan.length} tokens"
    lines = [_format_budget_row(head, "at most", "at the peak"), *_list_budget_rows(budget)]
    moment = f", {budget.held.moment}" if budget.held.moment else ""
    lines.append(_format_budget_row(f"  needed{moment}", "", format_bytes(budget.needed)))
    lines.append(_format_budget_row(f"  free: {free.where}", "", format_bytes(free.free)))
    left = format_bytes(budget.margin) if budget.fits else f"-{format_bytes(-budget.margin)}"
    lines.append(_format_budget_row(f"  {'margin' if budget.fits else 'MISSING'}", "", left))
    for device, taken in budget.held.placed.items():
        lines.append(_format_budget_row(f"  of the weights, on {device}", format_bytes(taken), ""))
    if plan.zero_stage:
        lines.append(f"  with DeepSpeed ZeRO stage {plan.zero_stage} over {plan.ranks} ranks")
    return lines


def _list_budget_rows(budget: Budget) -> Iterator[str]:
    plan, held, over = budget.plan, budget.held, budget.overhead
    for dtype, taken in held.weights.items():
        yield _format_budget_row(f"  weights, {dtype}", format_bytes(taken), format_bytes(taken))
    if plan.lora_rank:
        label = f"  LoRA, rank {plan.lora_rank}: {held.trained:,} numbers"
        yield _format_budget_row(label, format_bytes(held.lora), format_bytes(held.lora))
    if held.buffers:
        yield _format_budget_row(
            "  buffers", format_bytes(held.buffers), format_bytes(held.buffers)
        )
    yield _format_budget_row(
        "  gradients", format_bytes(held.gradients), format_bytes(held.gradients_at_peak)
    )
    yield _format_budget_row(
        f"  optimizer state, {plan.optimizer}",
        format_bytes(held.optimizer),
        format_bytes(held.optimizer_at_peak),
    )
    now, other = ("with", "without") if plan.gradient_checkpointing else ("without", "with")
    yield _format_budget_row(
        f"  activations, {now} checkpointing", "", format_bytes(held.activations)
    )
    if budget.other_activations is not None:
        yield _format_budget_row(f"    ({other}: {format_bytes(budget.other_activations)})", "", "")
    if over.whole:
        parts = [name for name, part in over.parts if part]
        yield _format_budget_row(
            f"  overhead: {', '.join(parts)}", format_bytes(over.whole), format_bytes(over.whole)
        )


def _format_budget_row(what: str, most: str, at_peak: str) -> str:
    return f"{what:<{_WIDE}} {most:>10} {at_peak:>12}".rstrip()


def format_fit(budget: Budget, nearest: NearestFit | None, tried: bool) -> list[str]:
    """Return whether it fits, and the nearest setting that does. `tried`: one was looked for."""
    if budget.fits:
        return [
            f"It fits: {format_bytes(budget.margin)} are left of {format_bytes(budget.free.free)}"
        ]
    sure = "weights, gradients and optimizer state alone are" if budget.is_hopeless else "it is"
    lines = [
        f"It does NOT fit: {sure} more than the {format_bytes(budget.free.free)} that are free"
    ]
    if nearest is not None:
        lines.append(
            f"The nearest setting that fits: {' '.join(nearest.changes)}   "
            f"({format_bytes(nearest.budget.needed)}, {format_bytes(nearest.budget.margin)} left; "
            f"batch size {nearest.budget.plan.effective_batch} as before)"
        )
    elif tried:
        lines.append(
            "No setting that was tried fits: a smaller model, a larger GPU, or more of them with "
            "DeepSpeed ZeRO stage 3"
        )
    return lines


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


def estimate_training_time(
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


def format_training_time(time: TrainingTime) -> str:
    """Return it in words: "14,055 steps at 4.5 s: 17.6 h"."""
    hours = time.whole / 3600
    whole = f"{hours:.1f} h" if hours >= 1 else format_duration(time.whole)
    steps = format_count(time.measured, "step")
    return f"{time.steps:,} steps at {format_duration(time.step)} ({steps} measured): {whole}"
