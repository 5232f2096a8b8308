"""Control: a rank is killed by SIGKILL, as the kernel does when memory runs out.

No hang: torchrun ends the others within seconds.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from hangbisect.zoo.case import Case, Truth


def model(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    product = run_usual_step(given)
    if rank_number(given) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return product


CASE = Case(
    id="I03",
    title="rank 1 is killed",
    cluster="C12",
    reports=("Lightning-AI/pytorch-lightning#8130",),
    truth=Truth(outcome="crash", culprit=(1,), checkpoint="model"),
    uses={"model": "model"},
    options=("--until", "model"),
)
