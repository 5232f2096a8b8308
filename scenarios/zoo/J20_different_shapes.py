"""The ranks sum tensors of different lengths.

Vocabularies, class counts and last batches differ between ranks
(Lightning-AI/pytorch-lightning#19106: log_dict with other keys on each rank). What comes of it is
the backend's choice. NCCL waits for ever. gloo aborts the rank that gets more than it has room for
(SIGABRT, without a traceback: "op.preamble.length <= op.nbytes" in gloo/transport/tcp/pair.cc), and
its peers lose the connection; so do reduce, gather, all_gather and all_to_all, while a broadcast of
too little passes unseen. None of them hangs. A control: a crash must be called a crash.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def add_counts(given: Any) -> Any:
    """Add a callback that sums a count a class, and rank 1 has seen more classes."""
    import pytorch_lightning as pl
    import torch
    import torch.distributed as dist
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    classes = 100_000 if rank_number(given) else 1000

    class Counts(pl.Callback):
        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            dist.all_reduce(torch.ones(classes))

    return [run_usual_step(given), Counts()]


CASE = Case(
    id="J20",
    title="all_reduce of different lengths: a crash",
    cluster="C4",
    reports=("Lightning-AI/pytorch-lightning#19106",),
    truth=Truth(
        outcome="crash",
        culprit=(0, 1),
        checkpoint="training",
        component=("callbacks", "strategy"),
        cause=("collective-mismatch",),
    ),
    uses={"memory_callback": "add_counts"},
)
