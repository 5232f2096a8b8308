"""Every rank asks "do you wish to run the custom code? [y/N]" and reads from the terminal.

One prompt a rank, printed over each other; whoever answers answers one of them
(huggingface/diffusers PR 10727, for trust_remote_code).

Here the job has a terminal of its own, at which nobody types.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def model(given: Any) -> Any:
    from hangbisect.zoo.in_rank import run_usual_step

    if input("Do you wish to run the custom code? [y/N] ") != "y":
        raise SystemExit("custom code is needed")
    return run_usual_step(given)


@contextlib.contextmanager
def at_a_terminal(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts.processes import TERMINAL

    yield Stage(prefix=TERMINAL)


CASE = Case(
    id="H11",
    title="every rank asks for leave at the terminal",
    cluster="C18",
    reports=("huggingface/diffusers PR 10727", "deepspeedai/DeepSpeed PR 1832"),
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="model",
        component=("model",),
        waits_for=("input",),
        cause=("prompt",),
    ),
    uses={"model": "model"},
    options=("--until", "model"),
    stage=at_a_terminal,
)
