"""A rank ends with status 0 at the start of the script, and the others wait for it.

torchrun takes status 0 for success and leaves the rest of the job alone; rank 0 waits for ever for
a process that is no more. In the wild it is a SIGTERM handler that calls sys.exit(0)
(ai2cm/ace PR 1068), a "nothing to do for me" check, or an argument parser that prints its help on
one node.
"""

from __future__ import annotations

import sys
from typing import Any

from hangbisect.zoo.case import Case, Truth


def script(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    product = run_usual_step(given)
    if rank_number(given) == 1:
        sys.exit(0)
    return product


CASE = Case(
    id="I02",
    title="rank 1 ends with status 0 at the start",
    cluster="C12",
    reports=("ai2cm/ace PR 1068", "Lightning-AI/pytorch-lightning#8130"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="script",
        component=("interpreter",),
        cause=("rank-left",),
    ),
    uses={"script": "script"},
    options=("--until", "arguments"),
)
