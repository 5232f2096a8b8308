"""Rank 2 of 4 leaves a collective out, and works on until the next one.

`if len(shard): all_reduce(...)`: its shard is empty. From then on rank 2 is one collective ahead of
the others, everyone is in one, and the stacks differ only in which (huggingface/datasets#1942,
pytorch/pytorch#145376 for the same with groups).
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def memory_callback(given: Any) -> Any:
    import pytorch_lightning as pl
    import torch
    import torch.distributed as dist
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    shard = [] if rank_number(given) == 2 else [1.0, 2.0]

    class Counts(pl.Callback):
        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            if shard:
                dist.all_reduce(torch.tensor(shard))

    return [run_usual_step(given), Counts()]


CASE = Case(
    id="H30",
    title="rank 2 of 4 leaves a collective out",
    cluster="C4",
    reports=("huggingface/datasets#1942", "dylanyunlon/Neuron_SP PR 80"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(2,),
        waiting=(0, 1, 3),
        checkpoint="training",
        component=("callbacks", "strategy", "fit"),
        waits_for=("collective",),
        cause=("rank-conditional-collective",),
        avoids=("callbacks=none",),
    ),
    ranks=4,
    options=("--wandb", "off"),
    uses={"memory_callback": "memory_callback"},
    limit=180.0,
)
