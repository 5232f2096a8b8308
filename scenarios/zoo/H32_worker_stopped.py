"""A DataLoader worker of rank 1 is stopped: its rank waits for a batch, rank 0 for its rank.

Two hops: rank 0 in a collective, rank 1 in poll() for its worker, the worker in state T (Ctrl-Z, a
debugger, a memory limit's freezer).
"""

from __future__ import annotations

import os
import signal
from typing import Any

from hangbisect.zoo.case import Case, Truth


def data_module(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    module = run_usual_step(given)
    torch = given.context.imports("torch")
    collate = module.train_dataloader
    if rank_number(given) == 1:

        def stops_itself() -> Any:
            loader = collate()
            inner = loader.collate_fn

            def batch(texts: list[str]) -> Any:
                if torch.utils.data.get_worker_info():
                    os.kill(os.getpid(), signal.SIGSTOP)
                return inner(texts)

            loader.collate_fn = batch
            return loader

        module.train_dataloader = stops_itself
    return module


CASE = Case(
    id="H32",
    title="a DataLoader worker of rank 1 is stopped",
    cluster="C22",
    reports=("benfred/py-spy#416",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="training",
        component=("data",),
        waits_for=("process",),
        cause=("stopped",),
        avoids=("num_workers=0",),
        call="DataLoader",
        chain=(r"rank \d+ -> process \d+", r"process \d+ -> whoever stopped it"),
        explained_by=("state T|SIGSTOP",),
    ),
    uses={"data_module": "data_module"},
    options=("--wandb", "off", "--num-workers", "1"),
)
