"""wandb.init on every rank, and a server that never answers: all ranks sit in it.

Scripts that call wandb.init themselves, without asking which rank they are, do it on each; nobody
waits for anybody else then, and every rank is stuck for itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def unanswered(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    with servers.silent_server() as port:
        url = f"http://127.0.0.1:{port}"
        yield Stage(environment={"WANDB_BASE_URL": url, "WANDB_API_KEY": "0" * 40})


CASE = Case(
    id="I11b",
    title="wandb.init on every rank, the server never answers",
    cluster="C3",
    reports=("wandb/wandb#5214", "wandb/wandb#5017"),
    culprit_goes="everywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="wandb_logger",
        component=("wandb",),
        waits_for=("process",),
        detail="wandb-core",
        cause=("service-silent",),
        avoids=("wandb=offline", "wandb=off"),
    ),
    options=("--wandb", "every-rank"),
    stage=unanswered,
)
