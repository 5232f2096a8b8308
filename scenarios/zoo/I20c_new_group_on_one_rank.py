"""new_group called by rank 0 alone: it waits for all, whoever will be in the group.

torch.dist.new_group has to be called by every rank of the job, also by those that will not
be members; below an `if rank == 0` it never returns (pytorch/pytorch#25390, #134314).
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def memory_callback(given: Any) -> Any:
    import pytorch_lightning as pl
    import torch.distributed as dist
    from hangbisect.zoo.in_rank import run_usual_step

    class ReportsApart(pl.Callback):
        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            if trainer.is_global_zero:
                self.group = dist.new_group([0, 1])

    return [run_usual_step(given), ReportsApart()]


CASE = Case(
    id="I20c",
    title="new_group that only rank 0 calls",
    cluster="C4",
    reports=("pytorch/pytorch#25390", "pytorch/pytorch#134314", "pytorch/pytorch#145376"),
    culprit_goes="first",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1,),
        checkpoint="training",
        component=("callbacks", "strategy"),
        waits_for=("store", "rank"),
        cause=("group-on-some-ranks",),
        avoids=("callbacks=none",),
    ),
    options=("--wandb", "off"),
    uses={"memory_callback": "memory_callback"},
)
