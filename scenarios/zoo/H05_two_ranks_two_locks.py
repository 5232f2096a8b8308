"""Two ranks take two file locks in opposite order: each has what the other wants.

A cache lock and an index lock, taken by two code paths. Nothing outside the job is at fault, and
neither rank alone is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def logs_directory(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    folder = os.environ["LOCKS"]
    names = ["cache.lock", "index.lock"]
    if rank_number(given) == 1:
        names.reverse()
    with open(os.path.join(folder, names[0]), "a") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        time.sleep(3)
        with open(os.path.join(folder, names[1]), "a") as second:
            fcntl.flock(second, fcntl.LOCK_EX)
    return run_usual_step(given)


@contextlib.contextmanager
def locks(place: CasePlace) -> Iterator[Stage]:
    yield Stage(environment={"LOCKS": str(place.tmp)})


CASE = Case(
    id="H05",
    title="two ranks, two locks, in opposite order",
    cluster="C9",
    reports=("huggingface/transformers#8234",),
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="logs_directory",
        component=("filesystem",),
        waits_for=("lock",),
        detail=r"(cache|index)\.lock",
        cause=("deadlock",),
        call="flock",
        chain=(r"-> lock .*index\.lock", r"-> lock .*cache\.lock"),
        explained_by=(r"index\.lock", r"cache\.lock"),
    ),
    uses={"logs_directory": "logs_directory"},
    options=("--until", "logs_directory"),
    stage=locks,
)
