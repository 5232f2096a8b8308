"""Rank 1 is in a C function that does not come back, and has kept the GIL.

"Ctrl-C does nothing, Ctrl-Z works" (Lightning-AI/pytorch-lightning#17660); blocking native
calls that forgot to give the GIL back: pytorch/pytorch PR 100555, horovod/horovod#3352. No
thread of Python runs any more, so watchdogs in the process are silent too.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def load_model(given: Any) -> Any:
    """Return the model; on rank 1 after a call into C that never ends."""
    import ctypes

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    model = run_usual_step(given)
    if rank_number(given) == 1:
        ctypes.PyDLL(None).sleep(100_000)  # PyDLL, unlike CDLL, keeps the GIL
    return model


CASE = Case(
    id="I31",
    title="a native call of rank 1 holds the GIL and does not return",
    cluster="C11",
    reports=("Lightning-AI/pytorch-lightning#17660", "pytorch/pytorch PR 100555"),
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
