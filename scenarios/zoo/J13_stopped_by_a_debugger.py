"""A debugger was attached to rank 1 and forgotten.

State t, not T: SIGCONT does nothing, and no other debugger can attach. benfred/py-spy#416 and
people with gdb in a second window.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def debugger(place: CasePlace) -> Iterator[Stage]:
    """A tracer that stops whoever asks it to."""
    from hangbisect.zoo.parts import processes

    with processes.waiting_tracer(place.tmp / "tracer.sock"):
        yield Stage(environment={"TRACER_SOCKET": str(place.tmp / "tracer.sock")})


def load_model(given: Any) -> Any:
    """Return the model; rank 1 is attached to first."""
    import os
    import socket
    import time

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    model = run_usual_step(given)
    if rank_number(given) == 1:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(os.environ["TRACER_SOCKET"])
            client.sendall(str(os.getpid()).encode())
            time.sleep(2)
    return model


CASE = Case(
    id="J13",
    title="rank 1 is stopped by a debugger",
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
        cause=("stopped-by-debugger",),
    ),
    stage=debugger,
    uses={"model": "load_model"},
    needs=("root",),
)
