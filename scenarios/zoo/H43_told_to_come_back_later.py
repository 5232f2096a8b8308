"""Control: a server says 429 with Retry-After, and rank 0 sleeps for as long: longer than --stall.

Nothing of the rank moves, and the kernel knows when it will wake. Here it only sleeps.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth

RETRY_AFTER = 18


def data_module(given: Any) -> Any:
    import time

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 0:
        time.sleep(RETRY_AFTER)
    return run_usual_step(given)


CASE = Case(
    id="H43",
    title="control: rank 0 sleeps until it may ask again",
    cluster="control",
    reports=(),
    truth=Truth(outcome="ok"),
    uses={"data_module": "data_module"},
    options=("--until", "data_module"),
)
