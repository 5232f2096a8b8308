"""Rank 1's container is paused: the freezer of its control group.

`docker pause`, a suspended Slurm job, and what is left of an interrupted checkpoint
(sosy-lab/benchexec#841). Its processes are in state S, in whatever they did; only the control
group tells.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def container(place: CasePlace) -> Iterator[Stage]:
    """A control group that somebody freezes."""
    from hangbisect.zoo.parts import system

    with system.freezing_cgroup() as group:
        yield Stage(environment={"CONTAINER_GROUP": str(group)})


def load_model(given: Any) -> Any:
    """Return the model; rank 1 goes into the group, and is asleep when it is frozen."""
    import os
    import time
    from pathlib import Path

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    model = run_usual_step(given)
    if rank_number(given) == 1:
        group = Path(os.environ["CONTAINER_GROUP"])
        (group / "cgroup.procs").write_text(str(os.getpid()))
        time.sleep(3)
    return model


CASE = Case(
    id="J14",
    title="rank 1 is frozen by its control group",
    cluster="C22",
    reports=("sosy-lab/benchexec#841",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="model",
        component=("model",),
        waits_for=("stopped",),
        cause=("frozen",),
    ),
    stage=container,
    uses={"model": "load_model"},
    needs=("root", "freezer"),
)
