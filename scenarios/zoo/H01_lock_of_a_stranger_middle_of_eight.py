"""Rank 3 of 8 waits for a file lock that a process outside the job holds.

A staging script on the same node still has the dataset's lock; only one of the ranks wants it. On
the others nothing is wrong.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def logs_directory(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 3:
        with open(os.environ["STAGING_LOCK"], "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
    return run_usual_step(given)


@contextlib.contextmanager
def held(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts.processes import hold_flock

    file = place.tmp / "staging.lock"
    with hold_flock(file):
        yield Stage(environment={"STAGING_LOCK": str(file)})


CASE = Case(
    id="H01",
    title="rank 3 of 8 waits for a stranger's file lock",
    cluster="C9",
    reports=("huggingface/datasets#3983", "deepspeedai/DeepSpeed#5205"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(3,),
        waiting=(0, 1, 2, 4, 5, 6, 7),
        checkpoint="logs_directory",
        component=("filesystem",),
        waits_for=("lock",),
        detail=r"staging\.lock",
        cause=("file-lock-held",),
        call="flock",
        chain=(r"rank \d+ -> lock .*staging\.lock",),
        explained_by=(r"staging\.lock",),
    ),
    ranks=8,
    uses={"logs_directory": "logs_directory"},
    options=("--until", "logs_directory"),
    stage=held,
)
