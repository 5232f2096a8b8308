"""The last of eight ranks opens a named pipe that nobody writes to; seven wait.

Rank 0's log is fine, as are six others: on real jobs nobody looks at rank 7's
(bigcode-project/Megatron-LM#27: the *last* rank starts W&B).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def pipe(place: CasePlace) -> Iterator[Stage]:
    """A named pipe without a writer."""
    from hangbisect.zoo.parts import processes

    yield Stage(environment={"CONTROL_PIPE": str(processes.unopened_fifo(place.tmp / "control"))})


def make_logs(given: Any) -> Any:
    """Return the logs directory; the last rank looks whether there is an order for it."""
    import os

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    made = run_usual_step(given)
    if rank_number(given) == 7:
        with open(os.environ["CONTROL_PIPE"]) as control:
            control.read()
    return made


CASE = Case(
    id="J32",
    title="the last of 8 ranks opens a FIFO without a writer",
    cluster="pipes",
    reports=("bigcode-project/Megatron-LM#27",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(7,),
        waiting=(0, 1, 2, 3, 4, 5, 6),
        checkpoint="logs_directory",
        component=("filesystem",),
        waits_for=("pipe",),
        detail="control",
        cause=("pipe-no-writer",),
        call="^open$",
        chain=(r"rank \d+ -> .*control",),
        explained_by=("control",),
    ),
    ranks=8,
    stage=pipe,
    uses={"logs_directory": "make_logs"},
    options=("--until", "logs_directory"),
)
