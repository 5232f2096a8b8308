"""Rank 0 of four asks a service on the same machine, by a Unix socket, and gets no answer.

wandb's service before 0.13, ray's raylet, model servers: "Timed out waiting for wandb service"
(wandb/wandb#5214), placement of actors that never comes (OpenRLHF/OpenRLHF#865).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def service(place: CasePlace) -> Iterator[Stage]:
    """A service that listens and never answers."""
    from hangbisect.zoo.parts import processes

    path = place.tmp / "placement.sock"
    with processes.silent_unix_socket(path):
        yield Stage(environment={"PLACEMENT_SOCKET": str(path)})


def no_tokenizer(given: Any) -> None:
    """Do without: the case is about the step after it."""


def load_model(given: Any) -> None:
    """Ask the service where the model goes."""
    import os
    import socket

    from hangbisect.zoo.in_rank import rank_number

    if rank_number(given) == 0:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(os.environ["PLACEMENT_SOCKET"])
            client.sendall(b"where?\n")
            client.recv(4096)


CASE = Case(
    id="J10",
    title="rank 0 of 4 asks a service by a Unix socket: no answer",
    cluster="C10",
    reports=("wandb/wandb#5214", "OpenRLHF/OpenRLHF#865"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1, 2, 3),
        checkpoint="model",
        component=("model",),
        waits_for=("socket",),
        detail="placement",
        cause=("endpoint-silent",),
    ),
    ranks=4,
    stage=service,
    uses={"tokenizer": "no_tokenizer", "model": "load_model"},
    options=("--until", "model"),
)
