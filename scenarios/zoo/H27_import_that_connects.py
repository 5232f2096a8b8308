"""A module connects to a service while it is imported, and the service never answers.

"Hangs at import": a settings module that asks a parameter server, a library that sends telemetry.
Only rank 1 imports it.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth

SETTINGS = """
import os
import socket

with socket.create_connection(("127.0.0.1", int(os.environ["PARAMETERS"]))) as server:
    answer = server.recv(4096)
"""


def model(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 1:
        importlib.import_module("cluster_settings")
    return run_usual_step(given)


@contextlib.contextmanager
def unanswered(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    (place.folder / "cluster_settings.py").write_text(SETTINGS)
    with servers.silent_server() as port:
        yield Stage(environment={"PARAMETERS": str(port)})


CASE = Case(
    id="H27",
    title="a module of rank 1 connects while it is imported",
    cluster="C20",
    reports=("nandometzger/metal-gauss#19",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="model",
        component=("model", "interpreter"),
        waits_for=("socket",),
        detail="ESTABLISHED",
        cause=("endpoint-silent",),
    ),
    uses={"model": "model"},
    options=("--until", "model"),
    stage=unanswered,
)
