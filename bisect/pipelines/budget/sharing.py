"""What several ranks hold in common: DistributedDataParallel's buckets, DeepSpeed's ZeRO stages."""

from __future__ import annotations

from dataclasses import replace

from .held import Held, Overhead
from .plan import TrainingPlan

STAGES = (1, 2, 3)
# cuBLAS, for each handle and stream: 8 MiB, 32 on Hopper (torch, "CUDA semantics"). The larger one.
WORKSPACE = 32 << 20


def overhead(held: Held, plan: TrainingPlan, on_gpu: bool) -> Overhead:
    """Return what is held beside the model's own tensors.

    DDP copies gradients to buckets, in which it sums them up: as much again as the gradients.
    """
    return Overhead(
        ddp_buckets=held.gradients if plan.ranks > 1 and not plan.zero_stage else 0,
        workspace=WORKSPACE if on_gpu else 0,
    )


def shared(held: Held, plan: TrainingPlan) -> Held:
    """Return what one rank holds under the plan's ZeRO stage.

    Stage 1 shares the optimizer's state among the ranks, 2 the gradients as well, 3 the weights
    too. While a layer computes it is whole on every rank: that is not counted.
    """
    stage, ranks = plan.zero_stage, plan.ranks
    if not stage or ranks == 1:
        return held

    def part(size: int, of_stage: int) -> int:
        return size // ranks if stage >= of_stage else size

    made = replace(
        held,
        optimizer=part(held.optimizer, 1),
        optimizer_at_peak=part(held.optimizer_at_peak, 1),
        gradients=part(held.gradients, 2),
        gradients_at_peak=part(held.gradients_at_peak, 2),
        weights={dtype: part(size, 3) for dtype, size in held.weights.items()},
        lora=part(held.lora, 3),
    )
    return replace(made, peak=held.peak - (_without_activations(held) - _without_activations(made)))


def _without_activations(held: Held) -> int:
    return held.all_weights + held.lora + held.gradients_at_peak + held.optimizer_at_peak
