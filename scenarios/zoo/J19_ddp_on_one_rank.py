"""Rank 1 alone wraps a module in DistributedDataParallel.

Its constructor compares the parameters of all ranks, which is a collective
(pytorch/pytorch#68803, #76449: "the DDP ctor: rank 0 passes, the rest in broadcast"). Here: an
average of the weights, for rank 1's own use.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def add_teacher(given: Any) -> Any:
    """Add a callback with a second model."""
    import pytorch_lightning as pl
    import torch
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    me = rank_number(given)

    class Teacher(pl.Callback):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            if me == 1:
                torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))

    return [run_usual_step(given), Teacher()]


CASE = Case(
    id="J19",
    title="rank 1 alone constructs DDP",
    cluster="C4",
    reports=("pytorch/pytorch#68803", "pytorch/pytorch#76449"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="training",
        component=("callbacks", "strategy"),
        waits_for=("collective",),
        cause=("ddp-on-some-ranks",),
        avoids=("callbacks=none",),
    ),
    uses={"memory_callback": "add_teacher"},
)
