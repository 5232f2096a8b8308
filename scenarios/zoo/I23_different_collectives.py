"""One rank sums, the other broadcasts: their collectives never match.

People see a job that freezes where a debug print or an `if rank == ...` was added, with ranks
on neighbouring lines (dylanyunlon/Neuron_SP PR 80, pytorch/pytorch#25390). With gloo nothing
says so; each rank waits for a message that the other will not send.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def add_statistics(given: Any) -> Any:
    """Add a callback that brings a mean together, in two ways."""
    import pytorch_lightning as pl
    import torch
    import torch.distributed as dist
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    me = rank_number(given)

    class Statistics(pl.Callback):
        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            mean = torch.ones(100_000)
            if me == 0:
                dist.all_reduce(mean)
            else:
                dist.broadcast(mean, src=1)
            dist.barrier()

    return [run_usual_step(given), Statistics()]


CASE = Case(
    id="I23",
    title="rank 0 enters all_reduce, rank 1 broadcast",
    cluster="C4",
    reports=("dylanyunlon/Neuron_SP PR 80", "pytorch/pytorch#25390"),
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="training",
        component=("callbacks", "strategy"),
        waits_for=("collective",),
        cause=("collective-mismatch",),
        avoids=("callbacks=none",),
    ),
    uses={"memory_callback": "add_statistics"},
)
