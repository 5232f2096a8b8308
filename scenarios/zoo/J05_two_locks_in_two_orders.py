"""Two threads of rank 1 take the same two locks, each in its own order.

scikit-learn/scikit-learn#29145 found it between the loader's lock and an allocator's, by gdb.
Here both are Python's: the main thread has one and wants the other, a background thread has
that and wants this.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def make_data(given: Any) -> Any:
    """Return the data module; rank 1 fills its cache from two threads first."""
    import threading

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    index, shards = threading.Lock(), threading.Lock()
    both = threading.Barrier(2)

    def refresh() -> None:
        with shards:
            both.wait()
            with index:
                pass

    module = run_usual_step(given)
    if rank_number(given) == 1:
        threading.Thread(target=refresh, daemon=True, name="refresh").start()
        with index:
            both.wait()
            with shards:
                pass
    return module


CASE = Case(
    id="J05",
    title="two threads of rank 1 wait for each other's lock",
    cluster="C20",
    reports=("scikit-learn/scikit-learn#29145",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="data_module",
        component=("data",),
        waits_for=("lock",),
        cause=("lock-order",),
    ),
    uses={"data_module": "make_data"},
)
