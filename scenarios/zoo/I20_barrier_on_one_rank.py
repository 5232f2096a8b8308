"""A barrier that only rank 0 calls: it meets another one, and the hang is seen somewhere else.

`if trainer.is_global_zero: torch.dist.barrier()` in on_fit_start. Rank 1's next barrier,
which is Lightning's, takes it for its own; from then on the two are one collective apart, and each
waits in one that the other will never enter. The line that is wrong is on no stack any more
(huggingface/transformers-bloom-inference PR 40, Lightning-AI/pytorch-lightning#18148).
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def memory_callback(given: Any) -> Any:
    import pytorch_lightning as pl
    import torch.distributed as dist
    from hangbisect.zoo.in_rank import run_usual_step

    class ReportOnce(pl.Callback):
        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            if trainer.is_global_zero:
                dist.barrier()

    return [run_usual_step(given), ReportOnce()]


CASE = Case(
    id="I20",
    title="a barrier that only rank 0 calls",
    cluster="C4",
    reports=(
        "Lightning-AI/pytorch-lightning#18148",
        "huggingface/transformers-bloom-inference PR 40",
    ),
    culprit_goes="first",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        culprit_by_stacks=(0, 1),  # the call too many is over: none is named by chance
        checkpoint="training",
        component=("callbacks", "strategy"),
        waits_for=("collective",),
        cause=("rank-conditional-collective",),
        avoids=("callbacks=none",),
    ),
    options=("--wandb", "off"),
    uses={"memory_callback": "memory_callback"},
)
