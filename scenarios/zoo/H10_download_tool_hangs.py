"""Rank 0 runs a program that downloads the data, and the program does not end.

`aws s3 sync`, `git lfs pull`, `gsutil cp`: started with subprocess.run, silent, and stuck in a
network of its own. The rank's stack ends in subprocess; which program it is only its children tell.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def data_module(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 0:
        subprocess.run(["aws", "s3", "sync", "--quiet", "s3://corpus", "corpus"], check=True)
    return run_usual_step(given)


@contextlib.contextmanager
def stuck_tool(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import processes, servers

    with servers.silent_server() as port:
        yield Stage(environment={"PATH": processes.put_stuck_on_path(place.folder, "aws", port)})


CASE = Case(
    id="H10",
    title="a download program of rank 0 does not end",
    cluster="C7",
    reports=("huggingface/xet-core#850",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1,),
        checkpoint="data_module",
        component=("data",),
        waits_for=("process",),
        detail="aws",
        cause=("child-program",),
        call=r"^subprocess\.run$",
        chain=(r"rank \d+ -> process \d+", r"process \d+ -> 127\.0\.0\.1:\d+"),
        explained_by=("aws s3 sync",),
    ),
    uses={"data_module": "data_module"},
    options=("--until", "data_module"),
    stage=stuck_tool,
)
