"""All ranks but one wait for a System V semaphore that a dead job took.

Native libraries count who may load at once with semop(2); without SEM_UNDO what a killed job
took stays taken until the machine starts again. Most ranks are stuck, and the one that goes on
is not at fault.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def earlier_job(place: CasePlace) -> Iterator[Stage]:
    """A semaphore that somebody took."""
    from hangbisect.zoo.parts import processes

    with processes.taken_semaphore() as number:
        yield Stage(environment={"LOADING_SEMAPHORE": str(number)})


def no_tokenizer(given: Any) -> None:
    """Do without: the case is about the step after it."""


def load_model(given: Any) -> None:
    """Ask the semaphore for leave to load, as a native loader does."""
    import ctypes
    import os

    from hangbisect.zoo.in_rank import rank_number

    if rank_number(given) != 0:
        take_one = (ctypes.c_short * 3)(0, -1, 0)  # struct sembuf: number, operation, flags
        ctypes.CDLL(None).semop(int(os.environ["LOADING_SEMAPHORE"]), take_one, 1)


CASE = Case(
    id="J03",
    title="ranks 1 to 3 of 4 wait for a System V semaphore",
    cluster="C9",
    reports=("man 2 semop",),
    truth=Truth(
        outcome="hang",
        culprit=(1, 2, 3),
        waiting=(0,),
        checkpoint="model",
        component=("model",),
        waits_for=("lock",),
        detail="sem",
        cause=("dead-owner",),
    ),
    ranks=4,
    stage=earlier_job,
    uses={"tokenizer": "no_tokenizer", "model": "load_model"},
    options=("--until", "model"),
)
