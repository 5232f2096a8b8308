"""Control: rank 0 packs the data for half a minute; the others look for its marker twice a second.

"Rank 0 first" as many scripts do it, without a barrier: `while not marker.exists(): sleep(0.5)`.
Nothing ever moves on the ranks that wait, and they are not stuck, for rank 0 gets on.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth

SECONDS = 30.0


def data_module(given: Any) -> Any:
    import os
    import time
    import zlib
    from pathlib import Path

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    marker, end = Path("packed"), time.monotonic() + SECONDS
    if rank_number(given) == 0:
        with open("shards", "wb") as shards:
            while time.monotonic() < end:
                shards.write(zlib.compress(os.urandom(1 << 20)))
                time.sleep(0.05)
        marker.touch()
    while not marker.exists():
        time.sleep(0.5)
    return run_usual_step(given)


CASE = Case(
    id="H36",
    title="control: ranks that look for a marker of rank 0, who works",
    cluster="control",
    reports=("JIA-Lab-research/LongLoRA#45",),
    truth=Truth(outcome="ok", slow="data_module"),
    ranks=3,
    uses={"data_module": "data_module"},
    options=("--timeout", "data_module=20", "--until", "data_module"),
)
