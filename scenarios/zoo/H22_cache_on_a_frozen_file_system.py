"""Rank 1 writes a cache file, and the file system does not answer any more: state D.

An NFS server that went away, in the middle of the run; only the rank that writes notices. SIGKILL
does not help until the server is back (wandb/wandb#2207, Garden-AI/rootstock#167).

Here an ext4 on a loop device that is frozen, and thawed when the case is over.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def data_module(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 1:
        with open(os.path.join(os.environ["CACHE"], "lengths.bin"), "wb") as file:
            file.write(b"\0" * 4096)
    return run_usual_step(given)


@contextlib.contextmanager
def frozen_cache(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import system

    with (
        system.mount_ext4(place.tmp / "cache") as cache,
        system.freeze_file_system(cache, seconds=60.0),
    ):
        yield Stage(environment={"CACHE": str(cache)})


CASE = Case(
    id="H22",
    title="rank 1 writes to a frozen file system",
    cluster="C16",
    reports=("wandb/wandb#2207", "Garden-AI/rootstock#167"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="data_module",
        component=("data", "filesystem"),
        waits_for=("file",),
        detail="cache",
        cause=("filesystem-stuck",),
        call="^open$",
        chain=(r"rank \d+ -> file .*cache",),
        explained_by=(r"lengths\.bin", "state D"),
    ),
    uses={"data_module": "data_module"},
    options=("--until", "data_module"),
    stage=frozen_cache,
    needs=("root", "loop mount"),
)
