"""Rank 1 fails, catches the exception, and waits for better times.

What others see is a collective that never ends on every other rank, half an hour later the time
limit of the library, and no traceback anywhere: `except Exception` has eaten it
(Lightning-AI/pytorch-lightning#8130: "hangs forever if one child dies").
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def add_warmup(given: Any) -> Any:
    """Add a callback that fails on one rank, and waits before it would try again."""
    import logging
    import time

    import pytorch_lightning as pl
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    me = rank_number(given)

    class Warmup(pl.Callback):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            try:
                if me == 1:
                    raise ValueError("no statistics of the last run")
            except ValueError as error:
                logging.getLogger(__name__).warning("will try again later: %s", error)
                time.sleep(1e7)

    return [run_usual_step(given), Warmup()]


CASE = Case(
    id="I25",
    title="rank 1 swallows its exception and sleeps",
    cluster="C12",
    reports=("Lightning-AI/pytorch-lightning#8130",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="training",
        component=("callbacks",),
        waits_for=("sleep",),
        cause=("swallowed-exception",),
        avoids=("callbacks=none",),
        call=r"Trainer\.fit$",
        explained_by=("except ValueError",),
    ),
    uses={"memory_callback": "add_warmup"},
)
