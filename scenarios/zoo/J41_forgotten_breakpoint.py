"""A breakpoint was left in rank 1: its prompt waits on a terminal that nobody sees.

pytorch/torchtitan#652: torch.distributed.breakpoint(rank=1) with a launcher that shows rank 0
only, "it's always hanging". Rank 0 waits in the backward.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def terminal(place: CasePlace) -> Iterator[Stage]:
    """A terminal at which nobody types."""
    from hangbisect.zoo.parts import processes

    with processes.unattended_terminal() as path:
        yield Stage(environment={"JOB_TERMINAL": path})


def add_inspection(given: Any) -> Any:
    """Add a callback with a breakpoint in it."""
    import os
    import pdb
    import sys

    import pytorch_lightning as pl
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    me = rank_number(given)

    class Inspection(pl.Callback):
        def on_train_batch_start(
            self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
        ) -> None:
            if me == 1:
                sys.stdin = open(os.environ["JOB_TERMINAL"])  # noqa: SIM115 for pdb
                pdb.set_trace()

    return [run_usual_step(given), Inspection()]


CASE = Case(
    id="J41",
    title="a forgotten breakpoint of rank 1",
    cluster="C18",
    reports=("pytorch/torchtitan#652", "pytorch/pytorch#154563"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="training",
        component=("callbacks", "fit"),
        waits_for=("input",),
        detail="pts",
        cause=("prompt",),
        avoids=("callbacks=none",),
    ),
    stage=terminal,
    uses={"memory_callback": "add_inspection"},
)
