"""/dev/shm is smaller than the batches that the workers hand over, as in a container's default.

Reported as a deadlock ("with docker we tend to get deadlocks when shm is not enough, rather
than clear error": huggingface/accelerate#1929, pytorch/pytorch#1355). With today's torch it
ends with an error. A control: a crash must be called a crash.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def small_shared_memory(place: CasePlace) -> Iterator[Stage]:
    """64 KiB of /dev/shm, for the job alone."""
    from hangbisect.zoo.parts import system

    mount = "mount -t tmpfs -o size=64k none /dev/shm"
    yield Stage(prefix=system.own_mounts([mount]))


CASE = Case(
    id="I45",
    title="/dev/shm of 64 KiB and workers: a crash",
    cluster="C17",
    reports=("huggingface/accelerate#1929",),
    truth=Truth(
        outcome="crash",
        culprit=(0, 1),
        checkpoint="training",
        component=("data",),
        cause=("shm-too-small",),
        avoids=("num_workers=0",),
    ),
    stage=small_shared_memory,
    options=("--num-workers", "2", "--batch-size", "256"),
    needs=("root", "unshare"),
)
