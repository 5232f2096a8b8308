"""The memory budget as lines of a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from ..generating.words import size
from .budget import Budget
from .nearest_fit import Nearest

_WIDE = 44  # characters before the figures


def budget_lines(budget: Budget) -> list[str]:
    """Return the table: what each part takes at most, and what of it there is at the peak."""
    plan, free = budget.plan, budget.free
    head = f"memory of each rank, {plan.batch_size} x {plan.length} tokens"
    lines = [_row(head, "at most", "at the peak"), *_rows(budget)]
    moment = f", {budget.held.moment}" if budget.held.moment else ""
    lines.append(_row(f"  needed{moment}", "", size(budget.needed)))
    lines.append(_row(f"  free: {free.where}", "", size(free.free)))
    left = size(budget.margin) if budget.fits else f"-{size(-budget.margin)}"
    lines.append(_row(f"  {'margin' if budget.fits else 'MISSING'}", "", left))
    for device, taken in budget.held.placed.items():
        lines.append(_row(f"  of the weights, on {device}", size(taken), ""))
    if plan.zero_stage:
        lines.append(f"  with DeepSpeed ZeRO stage {plan.zero_stage} over {plan.ranks} ranks")
    return lines


def _rows(budget: Budget) -> Iterator[str]:
    plan, held, over = budget.plan, budget.held, budget.overhead
    for dtype, taken in held.weights.items():
        yield _row(f"  weights, {dtype}", size(taken), size(taken))
    if plan.lora_rank:
        told = f"  LoRA, rank {plan.lora_rank}: {held.trained:,} numbers"
        yield _row(told, size(held.lora), size(held.lora))
    if held.buffers:
        yield _row("  buffers", size(held.buffers), size(held.buffers))
    yield _row("  gradients", size(held.gradients), size(held.gradients_at_peak))
    yield _row(
        f"  optimizer state, {plan.optimizer}", size(held.optimizer), size(held.optimizer_at_peak)
    )
    now, other = ("with", "without") if plan.gradient_checkpointing else ("without", "with")
    yield _row(f"  activations, {now} checkpointing", "", size(held.activations))
    if budget.other_activations is not None:
        yield _row(f"    ({other}: {size(budget.other_activations)})", "", "")
    if over.whole:
        parts = [name for name, part in over.parts if part]
        yield _row(f"  overhead: {', '.join(parts)}", size(over.whole), size(over.whole))


def _row(what: str, most: str, at_peak: str) -> str:
    return f"{what:<{_WIDE}} {most:>10} {at_peak:>12}".rstrip()


def verdict_lines(budget: Budget, nearest: Nearest | None, tried: bool) -> list[str]:
    """Return whether it fits, and the nearest setting that does. `tried`: one was looked for."""
    if budget.fits:
        return [f"It fits: {size(budget.margin)} are left of {size(budget.free.free)}"]
    sure = "weights, gradients and optimizer state alone are" if budget.is_hopeless else "it is"
    lines = [f"It does NOT fit: {sure} more than the {size(budget.free.free)} that are free"]
    if nearest is not None:
        lines.append(
            f"The nearest setting that fits: {' '.join(nearest.changes)}   "
            f"({size(nearest.budget.needed)}, {size(nearest.budget.margin)} left; batch size "
            f"{nearest.budget.plan.effective_batch} as before)"
        )
    elif tried:
        lines.append(
            "No setting that was tried fits: a smaller model, a larger GPU, or more of them with "
            "DeepSpeed ZeRO stage 3"
        )
    return lines
