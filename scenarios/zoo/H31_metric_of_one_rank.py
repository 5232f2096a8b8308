"""Rank 1 logs one metric more than rank 0, with sync_dist: one all_reduce too many.

`if loss > limit: self.log("spikes", ..., sync_dist=True)`; each metric that is synchronized is a
collective of its own (Lightning-AI/pytorch-lightning#19106: keys that differ between ranks). It
pairs with rank 0's next one, whatever that is.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def memory_callback(given: Any) -> Any:
    import pytorch_lightning as pl
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    me = rank_number(given)

    class Spikes(pl.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *rest: Any) -> None:
            if me == 1 and trainer.global_step == 1:
                pl_module.log("spikes", 1.0, sync_dist=True)

    return [run_usual_step(given), Spikes()]


CASE = Case(
    id="H31",
    title="rank 1 logs a synchronized metric more",
    cluster="C4",
    reports=("Lightning-AI/pytorch-lightning#19106",),
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        checkpoint="training",
        component=("callbacks", "strategy", "fit"),
        waits_for=("collective",),
        cause=("rank-conditional-collective",),
        avoids=("callbacks=none",),
    ),
    options=("--wandb", "off", "--fast-dev-run", "3"),
    uses={"memory_callback": "memory_callback"},
)
