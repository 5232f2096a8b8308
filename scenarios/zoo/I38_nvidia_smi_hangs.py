"""Rank 0 asks nvidia-smi how many GPUs there are, and nvidia-smi does not answer.

A GPU or driver in a bad state does this (NVIDIA/k8s-device-plugin#227, rwth-i6/returnn#1756).
The rank waits in subprocess.communicate; the child tells which program it is. Here a script of
that name waits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def bad_driver(place: CasePlace) -> Iterator[Stage]:
    """An nvidia-smi that does not come back."""
    from hangbisect.zoo.parts import processes

    answer = processes.unopened_fifo(place.tmp / "nvidiactl")
    path = processes.put_on_path(place.folder, {"nvidia-smi": f"read answer < {answer}"})
    yield Stage(environment={"PATH": path})


def choose_accelerator(given: Any) -> Any:
    """Return the accelerator; rank 0 asks nvidia-smi for a list first."""
    import subprocess

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 0:
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv"]
        subprocess.run(query, capture_output=True)
    return run_usual_step(given)


CASE = Case(
    id="I38",
    title="nvidia-smi does not answer rank 0",
    cluster="C11",
    reports=("NVIDIA/k8s-device-plugin#227", "rwth-i6/returnn#1756"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1,),
        checkpoint="accelerator",
        component=("accelerator",),
        waits_for=("process",),
        detail="nvidia-smi",
        cause=("child-program",),
        call=r"^subprocess\.run$",
        chain=(r"rank \d+ -> process \d+",),
        explained_by=("nvidia-smi --query-gpu=name",),
    ),
    stage=bad_driver,
    uses={"accelerator": "choose_accelerator"},
)
