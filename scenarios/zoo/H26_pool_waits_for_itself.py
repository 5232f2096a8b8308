"""Rank 0: a task in a pool of one thread waits for another task of the same pool.

Nested parallel loading with max_workers=1, which is what os.cpu_count() // world_size comes to on a
small machine. The inner task is never begun; on other ranks there are two workers.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hangbisect.zoo.case import Case, Truth


def data_module(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    with ThreadPoolExecutor(1 if rank_number(given) == 0 else 2) as pool:

        def shard(number: int) -> int:
            return number

        def all_shards() -> int:
            return sum(future.result() for future in [pool.submit(shard, n) for n in range(4)])

        pool.submit(all_shards).result()
    return run_usual_step(given)


CASE = Case(
    id="H26",
    title="rank 0's pool of one thread waits for itself",
    cluster="C20",
    reports=(),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1,),
        checkpoint="data_module",
        component=("data",),
        waits_for=("thread",),
        cause=("pool-waits-for-itself",),
        call=r"Future\.result$",
        chain=(r"rank \d+ -> .*thread",),
        explained_by=("pool",),
    ),
    uses={"data_module": "data_module"},
    options=("--until", "data_module"),
)
