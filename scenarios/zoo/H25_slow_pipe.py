"""Control: rank 1 reads from a child that says something every two seconds.

`zcat | filter` over a slow link. The rank is always in the same read(), the child hardly ever runs.
"""

from __future__ import annotations

import subprocess
from typing import Any

from hangbisect.zoo.case import Case, Truth

SHARDS = "for shard in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do sleep 2; echo $shard; done"


def data_module(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 1:
        with subprocess.Popen(["sh", "-c", SHARDS], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            shards = [int(line) for line in child.stdout]
            assert shards
    return run_usual_step(given)


CASE = Case(
    id="H25",
    title="control: a child that hands over a little at a time",
    cluster="control",
    reports=(),
    truth=Truth(outcome="ok", slow="data_module"),
    uses={"data_module": "data_module"},
    options=("--timeout", "data_module=12", "--until", "data_module"),
    limit=240.0,
)
