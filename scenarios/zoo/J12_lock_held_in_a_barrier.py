"""Rank 0 enters a barrier with a file lock in its hand; rank 1 wants the lock before its barrier.

A deadlock of two kinds of things that no tool shows together (huggingface/datasets#1942 is one
of locks and ranks). Each waits for the other: neither moves, and both stacks look innocent.

Both waits are right, for each of the two culprits has one: a lock, and in a
collective the one other rank.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def add_cache(given: Any) -> Any:
    """Add a callback that builds a cache, one rank after the other."""
    import fcntl
    import os

    import pytorch_lightning as pl
    import torch.distributed as dist
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    me = rank_number(given)
    path = os.path.abspath("cache.lock")

    class Cache(pl.Callback):
        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            with open(path, "a") as lock:
                if me == 1:
                    dist.barrier()  # rank 0 has it by now
                fcntl.flock(lock, fcntl.LOCK_EX)
                if me == 0:
                    dist.barrier()
                dist.barrier()

    return [run_usual_step(given), Cache()]


CASE = Case(
    id="J12",
    title="rank 0 has a file lock in a barrier, rank 1 wants it",
    cluster="C9",
    reports=("huggingface/datasets#1942",),
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="training",
        component=("callbacks", "strategy"),
        waits_for=("lock", "rank", "collective"),
        cause=("deadlock",),
        avoids=("callbacks=none",),
    ),
    uses={"memory_callback": "add_cache"},
)
