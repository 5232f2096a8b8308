"""Rank 1 asks the process group's store for a key that nobody sets.

Seen where ranks hand each other an address or a path through the store and one of them skips
its part (pytorch/pytorch#134314, NVIDIA/nccl#708: "Timeout waiting for key"). It waits in
poll() on the store's socket, for the 30 minutes that are gloo's time limit.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def add_exchange(given: Any) -> Any:
    """Add a callback that waits for an address on one rank."""
    import pytorch_lightning as pl
    from hangbisect.zoo.in_rank import rank_number, run_usual_step
    from torch.distributed.distributed_c10d import _get_default_store

    me = rank_number(given)

    class Exchange(pl.Callback):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            if me == 1:
                _get_default_store().get("address-of-the-evaluator")

    return [run_usual_step(given), Exchange()]


CASE = Case(
    id="I26",
    title="rank 1 waits for a key of the store that nobody sets",
    cluster="C4",
    reports=("pytorch/pytorch#134314", "NVIDIA/nccl#708"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="training",
        component=("callbacks", "strategy"),
        waits_for=("store",),
        cause=("store-key-missing",),
        avoids=("callbacks=none",),
        call=r"Trainer\.fit$",
        chain=(r"rank \d+ -> store",),
        explained_by=("address-of-the-evaluator",),
    ),
    uses={"memory_callback": "add_exchange"},
)
