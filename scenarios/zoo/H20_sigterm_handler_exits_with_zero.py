"""Rank 1 gets SIGTERM, and its handler calls sys.exit(0): torchrun takes that for success.

A handler meant to end a job in good order; when only one rank gets the signal, the others go on and
wait for it in their next collective, for ever (ai2cm/ace PR 1068: "siblings hang").
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from hangbisect.zoo.case import Case, Truth


def in_good_order(number: int, frame: object) -> None:
    sys.exit(0)


def memory_callback(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    product = run_usual_step(given)
    signal.signal(signal.SIGTERM, in_good_order)
    if rank_number(given) == 1:
        os.kill(os.getpid(), signal.SIGTERM)
    return product


CASE = Case(
    id="H20",
    title="rank 1's SIGTERM handler exits with status 0",
    cluster="C12",
    reports=("ai2cm/ace PR 1068",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="memory_callback",
        component=("callbacks",),
        cause=("rank-left",),
        avoids=("callbacks=none",),
    ),
    uses={"memory_callback": "memory_callback"},
    options=("--wandb", "off", "--until", "memory_callback"),
)
