"""One process, no launcher, and a thread that it waits for never ends.

Debugging on one GPU: there are no other ranks to compare with (huggingface/setfit#495).
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def make_data(given: Any) -> Any:
    """Return the data module, after a background check."""
    import threading

    from hangbisect.zoo.in_rank import run_usual_step

    check = threading.Thread(target=threading.Event().wait, daemon=True, name="check")
    check.start()
    check.join()
    return run_usual_step(given)


CASE = Case(
    id="J48",
    title="one process, waiting for a thread of its own",
    cluster="C15",
    reports=("huggingface/setfit#495",),
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        checkpoint="data_module",
        component=("data",),
        waits_for=("thread",),
        cause=("thread-stuck",),
    ),
    ranks=1,
    launcher="python",
    uses={"data_module": "make_data"},
)
