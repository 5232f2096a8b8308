"""Step 5: the memory budget, before anything is loaded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import UsageError
from ..budget.budget import Budget, Free
from ..budget.in_words import budget_lines, verdict_lines
from ..budget.nearest_fit import nearest_fit
from ..budget.plan import TrainingPlan
from ..budget.several_gpus import max_memory
from ..generating.words import size
from .divided import divided

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...rank.context import Context
    from .configuration import Wanted


def memory_budget(context: Context) -> Budget | None:
    """Return the budget after its table; None where the model cannot be run without data, and on
    every rank but 0, which makes it for all of them.

    Raises UsageError if weights, gradients and optimizer state alone do not fit: starting it anyway
    might take the machine with it. `--skip memory_budget` goes on.
    """
    wanted: Wanted = context.products["configuration"]
    context.imports("psutil")
    free = _free(context, wanted)
    if context.place.rank:
        context.say(f"Free: {size(free.free)} of {size(free.total)}, {free.where}")
    with context.rank0_only("memory budget") as mine:
        return _budget(context, wanted, free) if mine else None


def _budget(context: Context, wanted: Wanted, free: Free) -> Budget | None:
    if wanted.plan.lora_rank:
        context.imports("peft")
    context.about_to("torch._subclasses.fake_tensor.FakeTensorMode", ", for a step without data")
    from ..budget import estimate as estimating

    on_gpu = wanted.device.type == "cuda"

    def estimate(plan: TrainingPlan) -> Budget:
        return estimating.estimate(wanted.config, plan, free, on_gpu)

    try:
        budget = estimate(wanted.plan)
        budget = estimating.with_other_activations(wanted.config, budget, on_gpu)
        placed = divided(context, wanted)
    except Exception as error:  # a model's own code may look at values, which fake tensors lack
        told = str(error).strip().splitlines() or [""]
        context.say(f"No memory budget: {type(error).__name__} without data: {told[0][:200]}")
        return None
    if placed is not None:
        budget = replace(budget, held=replace(budget.held, placed=placed.sizes))
    _tell(context, budget, estimate)
    return budget


def _tell(context: Context, budget: Budget, estimate: Callable[[TrainingPlan], Budget]) -> None:
    for line in budget_lines(budget):
        context.say(line)
    nearest = None if budget.fits else nearest_fit(budget.plan, estimate)
    lines = verdict_lines(budget, nearest, tried=not budget.fits)
    lines += _over_several_gpus(context, budget)
    if budget.is_hopeless:
        ways = [*lines[1:], "To see it fail all the same: --skip memory_budget"]
        raise UsageError(lines[0], "\n".join(ways))
    for line in lines:
        context.say(line)


def _over_several_gpus(context: Context, budget: Budget) -> list[str]:
    """Return how a model that does not fit can be divided, where one rank sees several GPUs."""
    wanted: Wanted = context.products["configuration"]
    torch = context.imports("torch")
    several = wanted.device.type == "cuda" and torch.cuda.device_count() > 1
    if budget.fits or budget.plan.ranks > 1 or not several or wanted.device_map != "none":
        return []
    from ..budget.free_memory import free_of_gpus

    limits = max_memory(budget, [free for free, _ in free_of_gpus()])
    if limits is None:
        return []
    told = " ".join(f"--max-memory {limit}" for limit in limits)
    return [f"Or divided over {len(limits)} GPUs, which compute in turn: --device-map auto {told}"]


def _free(context: Context, wanted: Wanted) -> Free:
    from ..budget.free_memory import free_memory

    if context.args.free_memory:
        told: int = context.args.free_memory
        return Free("as --free-memory says", told, told)
    several = wanted.device_map != "none"
    return free_memory(wanted.device, context.place.local_world_size, divided=several)
