"""Rank 0 downloads in prepare_data from a server that never answers; rank 1 waits at the barrier.

Lightning calls prepare_data on local rank 0 alone, inside a barrier without a time limit. It is the
others who look stuck in torch.distributed (Lightning-AI/pytorch-lightning PR 19448).
"""

from __future__ import annotations

import contextlib
import os
import urllib.request
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def data_module(given: Any) -> Any:
    from hangbisect.zoo.in_rank import run_usual_step

    module = run_usual_step(given)

    def download() -> None:
        urllib.request.urlopen(f"http://127.0.0.1:{os.environ['CORPUS']}/corpus.txt").read()

    module.prepare_data = download
    return module


@contextlib.contextmanager
def unanswered(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    with servers.silent_server() as port:
        yield Stage(environment={"CORPUS": str(port)})


CASE = Case(
    id="H21",
    title="rank 0's download in prepare_data never ends",
    cluster="C7",
    reports=("Lightning-AI/pytorch-lightning PR 19448", "huggingface/transformers#17106"),
    culprit_goes="first",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1,),
        checkpoint="training",
        component=("data",),
        waits_for=("socket",),
        detail="ESTABLISHED",
        cause=("endpoint-silent",),
    ),
    uses={"data_module": "data_module"},
    options=("--wandb", "off"),
    stage=unanswered,
)
