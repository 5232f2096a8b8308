"""Started with plain python; the rank that Lightning starts itself hangs on its way to fit.

`python train.py` with devices=2: rank 0 walks through the script, fit starts rank 1, which runs the
whole script again, and does something on its way that rank 0 got through: a server that answers
once. Rank 0 waits in init_process_group, in the foreground; of rank 1 nobody sees a line.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def data_module(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 1:
        with socket.create_connection(("127.0.0.1", int(os.environ["CATALOGUE"]))) as catalogue:
            catalogue.recv(1)
    return run_usual_step(given)


@contextlib.contextmanager
def unanswered(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    with servers.silent_server() as port:
        yield Stage(environment={"CATALOGUE": str(port)})


CASE = Case(
    id="H19",
    title="Lightning's own launch: rank 1 hangs on its way to fit",
    cluster="C7",
    reports=("pytorch/pytorch#49846", "Lightning-AI/pytorch-lightning#4420"),
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="data_module",
        component=("data",),
        waits_for=("socket",),
        detail="ESTABLISHED",
        cause=("endpoint-silent",),
    ),
    launcher="python",
    uses={"data_module": "data_module"},
    options=("--devices", "2", "--wandb", "off"),
    stage=unanswered,
)
