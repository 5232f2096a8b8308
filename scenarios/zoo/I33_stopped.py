"""Rank 1 is stopped by SIGSTOP: Ctrl-Z in the wrong window, or a tool that never let it go on.

benfred/py-spy#416: `py-spy dump --native` and Ctrl-C left its target in state T. Nothing is
wrong with the job; SIGCONT is all it needs.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def load_model(given: Any) -> Any:
    """Return the model; rank 1 is stopped first."""
    import signal

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    model = run_usual_step(given)
    if rank_number(given) == 1:
        signal.raise_signal(signal.SIGSTOP)
    return model


CASE = Case(
    id="I33",
    title="rank 1 is stopped (SIGSTOP)",
    cluster="C22",
    reports=("benfred/py-spy#416",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="model",
        component=("model",),
        waits_for=("stopped",),
        cause=("stopped",),
        chain=(r"rank \d+ -> whoever stopped it",),
        explained_by=("state T|SIGSTOP",),
    ),
    uses={"model": "load_model"},
)
