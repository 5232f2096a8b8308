"""Rank 1 polls for a file that rank 0 wrote to its own node's disk.

Meeting by files works until a path is not shared (allenai/OLMo PR 235,
KempnerInstitute/KempnerForge#49). It sleeps for a second, looks, and sleeps again: no system
call says what it waits for.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def make_data(given: Any) -> Any:
    """Return the data module once rank 0 has written the index."""
    import os
    import time

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    here, there = os.path.abspath("node0"), os.path.abspath("node1")
    if rank_number(given) == 0:
        os.makedirs(here, exist_ok=True)
        with open(os.path.join(here, "index.ready"), "w"):
            pass
    else:
        while not os.path.exists(os.path.join(there, "index.ready")):
            time.sleep(1)
    return run_usual_step(given)


CASE = Case(
    id="J23",
    title="rank 1 polls for a file that never appears",
    cluster="C16",
    reports=("allenai/OLMo PR 235", "KempnerInstitute/KempnerForge#49"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="data_module",
        component=("data",),
        waits_for=("sleep",),
        cause=("polling-loop",),
        call=r"^time\.sleep$",
    ),
    uses={"data_module": "make_data"},
)
