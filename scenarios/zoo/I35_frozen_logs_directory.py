"""The logs directory lies on a file system that no longer answers; rank 0 wants to make it.

NFS and Lustre do this when their server goes away: state D, and not even SIGKILL helps
(Garden-AI/rootstock#167, wandb/wandb#2207). Here it is an ext4 that fsfreeze has frozen; it
thaws after a while, so that the rank can be ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth

THAWED_AFTER = 50.0  # seconds


@contextlib.contextmanager
def frozen_disk(place: CasePlace) -> Iterator[Stage]:
    """A disk that is frozen, and the job's logs on it."""
    from hangbisect.zoo.parts import system

    with (
        system.mount_ext4(place.tmp / "disk") as disk,
        system.freeze_file_system(disk, THAWED_AFTER),
    ):
        yield Stage(options=("--logs-path", str(disk / "logs")))


CASE = Case(
    id="I35",
    title="rank 0 makes its logs directory on a frozen file system",
    cluster="C16",
    reports=("Garden-AI/rootstock#167", "wandb/wandb#2207"),
    culprit_goes="first",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1,),
        checkpoint="logs_directory",
        component=("filesystem",),
        waits_for=("file",),
        detail="disk|percpu_rwsem",
        cause=("filesystem-stuck",),
        call=r"^os\.makedirs$",
        chain=(r"rank \d+ -> file .*disk",),
        explained_by=("state D",),
    ),
    stage=frozen_disk,
    options=("--make-logs-dir", "rank0"),
    needs=("loop mount",),
)
