"""Control: a service on a Unix socket that takes five seconds for each answer.

A daemon of the machine that hands out licences or ports. The kernel counts no bytes of a Unix
socket; that the rank's recv() has returned shows all the same.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth

SERVICE = """
import socket, time
with socket.socket(socket.AF_UNIX) as server:
    server.bind(sys.argv[1])
    server.listen()
    ready()
    client, _ = server.accept()
    while client.recv(100):
        time.sleep(5)
        client.sendall(b"granted")
threading.Event().wait()
"""


def data_module(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 1:
        with socket.socket(socket.AF_UNIX) as service:
            service.connect(os.environ["LICENCES"])
            for _ in range(6):
                service.sendall(b"please")
                service.recv(100)
    return run_usual_step(given)


@contextlib.contextmanager
def slow_service(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts.processes import helper

    path = place.tmp / "licences"
    with helper(SERVICE, path):
        yield Stage(environment={"LICENCES": str(path)})


CASE = Case(
    id="H42",
    title="control: a local service that answers after 5 s",
    cluster="control",
    reports=(),
    truth=Truth(outcome="ok", slow="data_module"),
    uses={"data_module": "data_module"},
    stage=slow_service,
    options=("--timeout", "data_module=12", "--until", "data_module"),
    limit=240.0,
)
