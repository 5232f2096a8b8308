"""Rank 0 waits for a signal that its scheduler was to send.

Preemption and checkpoint handlers wait in sigwait(3) (ai2cm/ace PR 1068 is about such
handlers); a launcher that does not pass signals on leaves them there.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def make_trainer(given: Any) -> Any:
    """Return the Trainer once the scheduler has said so."""
    import signal

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    trainer = run_usual_step(given)
    if rank_number(given) == 0:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        signal.sigwait({signal.SIGUSR2})
    return trainer


CASE = Case(
    id="J26",
    title="rank 0 waits for a signal that nobody sends",
    cluster="C10",
    reports=("ai2cm/ace PR 1068",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1,),
        checkpoint="trainer",
        component=("trainer",),
        waits_for=("sleep",),
        detail="sig",
        cause=("signal-wait",),
        call=r"^signal\.sigwait$",
    ),
    uses={"trainer": "make_trainer"},
)
