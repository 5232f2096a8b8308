"""A worker of a multiprocessing.Pool is killed, for want of memory say, and map never ends.

The pool starts a new worker, but the task that the dead one had is lost, and map() waits for its
result (meta-pytorch/data#1173; python/cpython#66587). Preprocessing of a dataset on rank 0, say.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from typing import Any

from hangbisect.zoo.case import Case, Truth


def tokenize(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def data_module(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 0:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.map(tokenize, range(8), chunksize=1)
    return run_usual_step(given)


CASE = Case(
    id="H08",
    title="a pool's worker is killed, map never returns",
    cluster="C12",
    reports=("meta-pytorch/data#1173", "python/cpython#66587"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1,),
        checkpoint="data_module",
        component=("data",),
        waits_for=("process",),
        cause=("pool-worker-lost",),
        call=r"Pool\.map$",
    ),
    uses={"data_module": "data_module"},
    options=("--until", "data_module"),
)
