"""Two threads of rank 1 take a lock of Python's and one on a file, each in its own order.

vllm-project/vllm-omni#4894 is one: a stage had the lock of its orchestrator and wanted that of its
GPU, a file, and another stage the other way round. /proc/locks names one process twice, and each
stack for itself looks like a wait that will end.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def make_data(given: Any) -> Any:
    """Return the data module; rank 1 prepares two shards by two threads first."""
    import fcntl
    import os
    import threading

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    module = run_usual_step(given)
    if rank_number(given) != 1:
        return module
    index, both = threading.Lock(), threading.Barrier(2)
    path = os.path.abspath("device")

    def fill() -> None:
        with index:
            both.wait()
            with open(path, "a") as file:
                fcntl.flock(file, fcntl.LOCK_EX)

    def start() -> None:
        with open(path, "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            both.wait()
            with index:
                pass

    threads = [threading.Thread(target=one, daemon=True) for one in (fill, start)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return module


CASE = Case(
    id="J50",
    title="two threads of rank 1 wait for a lock of Python's and one on a file",
    cluster="C20",
    reports=("vllm-project/vllm-omni#4894",),
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="data_module",
        component=("data",),
        waits_for=("thread",),
        cause=("deadlock",),
    ),
    uses={"data_module": "make_data"},
)
