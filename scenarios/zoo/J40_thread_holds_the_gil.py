"""A background thread of rank 1 is in C with the GIL; the main thread cannot go on.

The stack of the main thread points at some harmless line (pytorch/pytorch PR 45088, PR 104103;
#109074). Who has the GIL tells.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def load_model(given: Any) -> Any:
    """Return the model; on rank 1 a thread warms up a native library meanwhile."""
    import ctypes
    import threading
    import time

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 1:
        sleep = ctypes.PyDLL(None).sleep  # PyDLL, unlike CDLL, keeps the GIL
        threading.Thread(target=sleep, args=(100_000,), daemon=True, name="warm-up").start()
        time.sleep(0.1)
    return run_usual_step(given)


CASE = Case(
    id="J40",
    title="a background thread of rank 1 holds the GIL in C",
    cluster="C11",
    reports=("pytorch/pytorch PR 45088", "pytorch/pytorch#109074"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="model",
        component=("model",),
        waits_for=("gil",),
        cause=("gil-held",),
    ),
    uses={"model": "load_model"},
)
