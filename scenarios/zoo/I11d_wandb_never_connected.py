"""Packets to W&B's server are dropped: the connection is never even made.

A compute node without a way out, behind a firewall that drops instead of refusing: the socket of
wandb-core stays in SYN_SENT.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def dropped(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    with servers.deaf_server() as port:
        url = f"http://127.0.0.1:{port}"
        yield Stage(environment={"WANDB_BASE_URL": url, "WANDB_API_KEY": "0" * 40})


CASE = Case(
    id="I11d",
    title="packets to W&B's server are dropped",
    cluster="C3",
    reports=("wandb/wandb#5017", "wandb/wandb#10669"),
    culprit_goes="first",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1,),
        checkpoint="wandb_logger",
        component=("wandb",),
        waits_for=("process",),
        detail="wandb-core",
        cause=("service-unreachable",),
        avoids=("wandb=offline", "wandb=off"),
    ),
    stage=dropped,
)
