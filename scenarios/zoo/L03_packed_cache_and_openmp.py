"""Packing waits for the lock of another job, and the workers hang in OpenMP after the fork.

Both happen when the loader is made and gives its first batch. Packed rows are kept in a cache that
jobs share, under a file lock that a forgotten job still holds (huggingface/datasets#3983); the
DataLoader's worker computes with OpenMP after its rank did (pytorch/pytorch#1355). Without packing
the job still hangs, and without workers it does too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


class Augmented:
    """Texts, each after some arithmetic on all cores, as augmentations do."""

    def __init__(self, texts: Any) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> Any:
        import torch

        torch.set_num_threads(2)
        torch.rand(1000, 1000).exp().sum()
        return self.texts[index]


def make_data(given: Any) -> Any:
    """Return the data module, with a cache of packed rows and arithmetic before the fork."""
    import torch
    from hangbisect.zoo.in_rank import run_usual_step

    module = run_usual_step(given)

    class Shared(type(module)):  # type: ignore[misc]
        def setup(self, stage: str) -> None:
            super().setup(stage)
            torch.set_num_threads(2)
            torch.rand(3000, 3000).exp().sum()
            self.texts: Any = Augmented(self.texts)

        def train_dataloader(self) -> Any:
            if self.packing:
                with open(os.environ["ROWS_LOCK"], "a") as file:
                    fcntl.flock(file, fcntl.LOCK_EX)
            return super().train_dataloader()

    module.__class__ = Shared
    return module


@contextlib.contextmanager
def held(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts.processes import hold_flock

    file = place.tmp / "rows.lock"
    with hold_flock(file):
        yield Stage(environment={"ROWS_LOCK": str(file)})


CASE = Case(
    id="L03",
    title="packing's lock is held, and workers hang after the fork",
    cluster="C9",
    reports=("huggingface/datasets#3983", "pytorch/pytorch#1355"),
    under=("pipeline",),  # packing is ours
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="training",
        component=("data",),
        waits_for=("lock",),
        detail=r"rows\.lock",
        cause=("file-lock-held",),
        avoids=(
            "packing=off num_workers=0",
            *("packing=off worker_start=forkserver", "packing=off worker_start=spawn"),
        ),
    ),
    uses={"data_module": "make_data"},
    options=(
        *("--wandb", "off", "--skip", "wandb_logger"),
        *("--num-workers", "1", "--packing", "on"),
    ),
    stage=held,
)
