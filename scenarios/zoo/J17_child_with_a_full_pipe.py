"""Rank 1 waits for a child, and the child for rank 1 to read what it printed.

Popen.wait() with stdout=PIPE "will deadlock when the child process generates enough output to a
pipe" (the library's documentation; localstack/localstack PR 1101). Works until the day the
output is longer than 64 KiB.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth

LISTING = "i=0; while [ $i -lt 9999 ]; do echo device $i is as it should be; i=$((i+1)); done"


def choose_accelerator(given: Any) -> Any:
    """Return the accelerator; rank 1 lists all devices first."""
    import subprocess

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 1:
        with subprocess.Popen(["sh", "-c", LISTING], stdout=subprocess.PIPE) as child:
            child.wait()
    return run_usual_step(given)


CASE = Case(
    id="J17",
    title="rank 1 waits for a child that fills its pipe",
    cluster="pipes",
    reports=("localstack/localstack PR 1101",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="accelerator",
        component=("accelerator",),
        waits_for=("process",),
        detail="sh",
        cause=("pipe-unread",),
        call=r"^subprocess\.Popen\.wait$",
        chain=(r"rank \d+ -> process \d+",),
        explained_by=("64 KiB",),
    ),
    uses={"accelerator": "choose_accelerator"},
)
