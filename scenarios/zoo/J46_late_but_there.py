"""Rank 1 arrives seven seconds after the others, having done nothing that one could see.

A control: a short wait that nobody should be told of (pytorch/torchtitan#3065 is about ranks ten
minutes apart).
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def load_model(given: Any) -> Any:
    """Return the model, on rank 1 a little later."""
    import time

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 1:
        time.sleep(7)
    return run_usual_step(given)


CASE = Case(
    id="J46",
    title="rank 1 is seven seconds late: nothing to say",
    cluster="control",
    reports=("pytorch/torchtitan#3065",),
    truth=Truth(outcome="ok"),
    uses={"model": "load_model"},
    options=("--until", "model"),
)
