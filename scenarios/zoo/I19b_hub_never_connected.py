"""Packets to the hub are dropped: every rank sits in connect, for ten seconds at a time.

A compute node without a way out. Each attempt ends after ten seconds and is made again, for every
file that may exist (espnet/espnet_model_zoo#76).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def dropped(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    home = place.tmp / "hf"
    servers.fill_hub_cache(home)
    with servers.deaf_server() as port:
        yield Stage(environment={"HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_HOME": str(home)})


CASE = Case(
    id="I19b",
    title="packets to the hub are dropped",
    cluster="C7",
    reports=("espnet/espnet_model_zoo#76", "huggingface/setfit#495"),
    culprit_goes="everywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="tokenizer",
        component=("hub",),
        waits_for=("socket",),
        detail="SYN_SENT",
        cause=("hub-unreachable",),
        avoids=("hub=offline",),
    ),
    options=("--tokenizer", "people/small", "--timeout", "tokenizer=20", "--until", "tokenizer"),
    stage=dropped,
    limit=150.0,
)
