"""Rank 0 of 8 asks Slurm for its nodes, and the controller does not answer.

`scontrol show hostnames` in the script's first lines; scontrol waits for its controller. Seven
ranks are past it (mlc-ai/pith-train PR 91 has the same call).
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def script(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    product = run_usual_step(given)
    if rank_number(given) == 0:
        subprocess.check_output(["scontrol", "show", "hostnames"])
    return product


@contextlib.contextmanager
def silent_controller(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import processes, servers

    with servers.silent_server() as port:
        yield Stage(
            environment={"PATH": processes.put_stuck_on_path(place.folder, "scontrol", port)}
        )


CASE = Case(
    id="H29",
    title="scontrol does not answer rank 0 of 8",
    cluster="C1",
    reports=("mlc-ai/pith-train PR 91",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1, 2, 3, 4, 5, 6, 7),
        checkpoint="script",
        component=("interpreter",),
        waits_for=("process",),
        detail="scontrol",
        cause=("child-program",),
        call=r"^subprocess\.check_output$",
        chain=(r"rank \d+ -> process \d+", r"process \d+ -> 127\.0\.0\.1:\d+"),
        explained_by=("scontrol show hostnames",),
    ),
    ranks=8,
    uses={"script": "script"},
    options=("--until", "script"),
    stage=silent_controller,
)
