"""Rank 1 takes a lock of its own twice: threading.Lock is not reentrant.

A registry with a lock, and a hook that registers something while the lock is held. Only one rank
comes that way.
"""

from __future__ import annotations

import threading
from typing import Any

from hangbisect.zoo.case import Case, Truth

REGISTRY = threading.Lock()


def register(given: Any, again: bool) -> Any:
    from hangbisect.zoo.in_rank import run_usual_step

    with REGISTRY:
        if again:
            return register(given, False)
        return run_usual_step(given)


def lightning_module(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number

    return register(given, again=rank_number(given) == 1)


CASE = Case(
    id="H06",
    title="rank 1 takes its own lock twice",
    cluster="C20",
    reports=(),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="lightning_module",
        component=("lightning",),
        waits_for=("lock",),
        cause=("self-deadlock",),
    ),
    uses={"lightning_module": "lightning_module"},
    options=("--until", "lightning_module"),
)
