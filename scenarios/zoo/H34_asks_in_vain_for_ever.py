"""Rank 1 asks a server that never answers, gives up after three seconds, and asks again, for ever.

A new connection every three seconds, and no byte ever comes (huggingface/setfit#495 is a client
that retries for minutes without a word).
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

    while rank_number(given) == 1:
        with (
            contextlib.suppress(TimeoutError),
            socket.create_connection(("127.0.0.1", int(os.environ["MIRROR"])), 3) as mirror,
        ):
            mirror.sendall(b"GET /index HTTP/1.0\r\n\r\n")
            mirror.recv(65536)
            break
    return run_usual_step(given)


@contextlib.contextmanager
def silent_mirror(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    with servers.silent_server() as port:
        yield Stage(environment={"MIRROR": str(port)})


CASE = Case(
    id="H34",
    title="rank 1 asks a silent server again and again",
    cluster="C7",
    reports=("huggingface/setfit#495",),
    culprit_goes="anywhere",
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
    uses={"data_module": "data_module"},
    stage=silent_mirror,
    options=("--until", "data_module"),
)
