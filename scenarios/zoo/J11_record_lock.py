"""All ranks want a POSIX lock (fcntl) on a file that another process has locked.

SQLite, HDF5 and NFS lock so, not by flock(2) (huggingface/datasets#3983, #4420). The kernel
knows the holder: /proc/locks says POSIX and its pid.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def other_job(place: CasePlace) -> Iterator[Stage]:
    """Somebody who has the index of all runs locked."""
    from hangbisect.zoo.parts import processes

    index = place.tmp / "index.sqlite"
    with processes.hold_record_lock(index):
        yield Stage(environment={"RUNS_INDEX": str(index)})


def make_logs(given: Any) -> Any:
    """Return the logs directory, and enter it in the index."""
    import fcntl
    import os

    from hangbisect.zoo.in_rank import run_usual_step

    with open(os.environ["RUNS_INDEX"], "r+") as index:
        fcntl.lockf(index, fcntl.LOCK_EX)
    return run_usual_step(given)


CASE = Case(
    id="J11",
    title="both ranks want a POSIX lock that another process has",
    cluster="C9",
    reports=("huggingface/datasets#3983", "huggingface/datasets#4420"),
    culprit_goes="everywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="logs_directory",
        component=("filesystem",),
        waits_for=("lock",),
        detail="index.sqlite",
        cause=("file-lock-held",),
        chain=(r"-> lock .*index\.sqlite",),
        explained_by=(r"index\.sqlite",),
    ),
    stage=other_job,
    uses={"logs_directory": "make_logs"},
    options=("--until", "logs_directory"),
)
