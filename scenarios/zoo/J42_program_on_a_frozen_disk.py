"""Rank 1 starts a program that lies on a file system which does not answer.

subprocess uses vfork(2): the rank stands in the kernel, with the GIL, until its child has found
the program, and the child is in state D (Garden-AI/rootstock#167: everything that touches that
mount). The disk thaws after a while, so that both can be ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth

THAWED_AFTER = 50.0  # seconds


@contextlib.contextmanager
def frozen_disk(place: CasePlace) -> Iterator[Stage]:
    """A disk with a program on it, frozen and in no cache."""
    from hangbisect.zoo.parts import processes, system

    with system.mount_ext4(place.tmp / "disk", mebibytes=64) as disk:
        processes.put_on_path(disk, {"list-devices": "exec true"})
        with system.freeze_file_system(disk, THAWED_AFTER):
            yield Stage(environment={"TOOLS": str(disk / "bin")})


def choose_accelerator(given: Any) -> Any:
    """Return the accelerator; rank 1 writes down its devices."""
    import os
    import subprocess

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 1:
        tools = os.environ["TOOLS"]
        subprocess.run(f"{tools}/list-devices > {tools}/devices", shell=True)
    return run_usual_step(given)


CASE = Case(
    id="J42",
    title="a child of rank 1 writes to a frozen disk",
    cluster="C16",
    reports=("Garden-AI/rootstock#167",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="accelerator",
        component=("accelerator", "filesystem"),
        waits_for=("process",),
        detail="sh|devices",
        cause=("filesystem-stuck",),
        call=r"^subprocess\.run$",
        chain=(r"rank \d+ -> process \d+",),
        explained_by=("state D",),
    ),
    stage=frozen_disk,
    uses={"accelerator": "choose_accelerator"},
    needs=("loop mount",),
)
