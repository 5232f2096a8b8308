"""Rank 1 is in a C function that waits for ever; the GIL is free.

What drivers and closed libraries do at their start (pytorch/pytorch#52145,
rwth-i6/returnn#1756). Threads of Python go on, so a heartbeat says that all is well.

pause(2) is only how the waiting is made here: that it would end at a signal is no part of the case.
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
        ctypes.CDLL(None).pause()
    return model


CASE = Case(
    id="I32",
    title="a native call of rank 1 waits for ever, without the GIL",
    cluster="C11",
    reports=("pytorch/pytorch#52145", "rwth-i6/returnn#1756"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="model",
        component=("model",),
        waits_for=("sleep",),
        detail="pause",
        cause=("native-call",),
    ),
    uses={"model": "load_model"},
)
