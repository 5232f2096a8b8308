"""trainer.log_dir read on rank 0 alone: reading it is a collective.

Below `if trainer.is_global_zero`, or in a function that is decorated with rank_zero_only, a
callback asks for trainer.log_dir to know where to write. The property broadcasts rank 0's answer to
all (Lightning-AI/pytorch-lightning#18148). With gloo the one who sends does not wait, so rank 0
comes to the next barrier as well; but it is two collectives ahead, and the barrier never ends. Both
ranks stand in the same line.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def memory_callback(given: Any) -> Any:
    import pytorch_lightning as pl
    from hangbisect.zoo.in_rank import run_usual_step

    class WritesPlots(pl.Callback):
        def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
            if trainer.is_global_zero:
                self.folder = trainer.log_dir

    return [run_usual_step(given), WritesPlots()]


CASE = Case(
    id="I20b",
    title="trainer.log_dir is read on rank 0 alone",
    cluster="C4",
    reports=("Lightning-AI/pytorch-lightning#18148",),
    culprit_goes="first",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        checkpoint="training",
        component=("callbacks", "strategy"),
        waits_for=("collective",),
        cause=("rank-conditional-collective",),
        avoids=("callbacks=none",),
    ),
    options=("--wandb", "off"),
    uses={"memory_callback": "memory_callback"},
)
