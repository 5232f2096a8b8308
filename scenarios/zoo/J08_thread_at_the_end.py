"""All is done on both ranks, and rank 0 does not end: a thread that is no daemon is still there.

"Training finished, the process never exits" (marin-community/marin PR 7304, wandb/wandb#1927,
pytorch/pytorch#2520). The interpreter waits for such threads in threading._shutdown.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def add_uploads(given: Any) -> Any:
    """Add a callback with a thread that sends metrics; on rank 0, as loggers do."""
    import queue
    import threading

    import pytorch_lightning as pl
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    me = rank_number(given)

    class Uploads(pl.Callback):
        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            metrics: queue.Queue[str] = queue.Queue()
            if me == 0:
                threading.Thread(target=metrics.get, name="uploads").start()

    return [run_usual_step(given), Uploads()]


CASE = Case(
    id="J08",
    title="rank 0 is done and does not end: a thread is left",
    cluster="C15",
    reports=("marin-community/marin PR 7304", "wandb/wandb#1927", "pytorch/pytorch#2520"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waits_for=("thread",),
        cause=("thread-at-exit",),
        avoids=("callbacks=none",),
    ),
    uses={"memory_callback": "add_uploads"},
)
