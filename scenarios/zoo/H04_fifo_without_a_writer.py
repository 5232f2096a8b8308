"""All four ranks open a FIFO that nobody writes to.

Configuration that is handed over through a named pipe, or `/dev/stdin` of a wrapper that is gone:
open() itself waits until somebody opens the other end.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def arguments(given: Any) -> Any:
    from hangbisect.zoo.in_rank import run_usual_step

    product = run_usual_step(given)
    with open(os.environ["SETTINGS"]) as file:
        file.read()
    return product


@contextlib.contextmanager
def nobody_writes(place: CasePlace) -> Iterator[Stage]:
    path = place.tmp / "settings"
    os.mkfifo(path)
    yield Stage(environment={"SETTINGS": str(path)})


CASE = Case(
    id="H04",
    title="all 4 ranks open a FIFO that nobody writes to",
    cluster="C18",
    reports=(),
    culprit_goes="everywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0, 1, 2, 3),
        checkpoint="arguments",
        component=("arguments",),
        waits_for=("pipe",),
        detail="settings",
        cause=("pipe-no-writer",),
    ),
    ranks=4,
    uses={"arguments": "arguments"},
    options=("--until", "arguments"),
    stage=nobody_writes,
)
