"""Nobody listens where W&B's server should be: W&B tries again and again, in silence.

A self-hosted server that is down, a wrong WANDB_BASE_URL: the connection is refused at once, and
wandb-core retries with growing pauses until wandb.init gives up after a minute and a half. Nothing
is printed meanwhile; to a person it is the same hang as a server that is silent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def refused(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    with servers.refusing_port() as port:
        url = f"http://127.0.0.1:{port}"
        yield Stage(environment={"WANDB_BASE_URL": url, "WANDB_API_KEY": "0" * 40})


CASE = Case(
    id="I11c",
    title="W&B's server refuses connections",
    cluster="C3",
    reports=("wandb/wandb#5017", "wandb/wandb#7671"),
    culprit_goes="first",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1,),
        checkpoint="wandb_logger",
        component=("wandb",),
        waits_for=("process",),
        detail="wandb-core",
        cause=("service-retries",),
        avoids=("wandb=offline", "wandb=off"),
    ),
    stage=refused,
)
