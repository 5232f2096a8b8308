"""Rank 2 of four gathers something in a callback, and nobody else does.

Debug code stays behind `if rank == 2` (dylanyunlon/Neuron_SP PR 80). Each of the other three
waits for rank 2 in the collective after it: the majority is innocent.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def add_debugging(given: Any) -> Any:
    """Add a callback that compares a loss, on one rank."""
    import pytorch_lightning as pl
    import torch
    import torch.distributed as dist
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    me = rank_number(given)

    class Debugging(pl.Callback):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            if me == 2:
                losses = [torch.zeros(1) for _ in range(dist.get_world_size())]
                dist.all_gather(losses, torch.ones(1))

    return [run_usual_step(given), Debugging()]


CASE = Case(
    id="J22",
    title="rank 2 of 4 enters a collective that nobody else does",
    cluster="C4",
    reports=("dylanyunlon/Neuron_SP PR 80",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(2,),
        waiting=(0, 1, 3),
        checkpoint="training",
        component=("callbacks", "strategy"),
        waits_for=("collective",),
        cause=("rank-conditional-collective",),
        avoids=("callbacks=none",),
    ),
    ranks=4,
    uses={"memory_callback": "add_debugging"},
    limit=180.0,
)
