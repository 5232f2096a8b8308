"""Control: rank 0 sends a file to a store that takes it slowly, a part every four seconds.

One sendall() in the same place; what moves are bytes that go out, and a window that opens now and
then.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth

STORE = """
import socket, time
with socket.create_server(("127.0.0.1", 0)) as server:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
    ready(server.getsockname()[1])
    taker, _ = server.accept()
    while taker.recv(1 << 20):
        time.sleep(4)
threading.Event().wait()
"""


def data_module(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 0:
        with socket.create_connection(("127.0.0.1", int(os.environ["UPLOADS"]))) as store:
            store.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
            store.sendall(bytes(2_000_000))
    return run_usual_step(given)


@contextlib.contextmanager
def slow_store(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts.processes import helper

    with helper(STORE) as server:
        yield Stage(environment={"UPLOADS": server.said})


CASE = Case(
    id="H41",
    title="control: an upload that is taken slowly",
    cluster="control",
    reports=("huggingface/xet-core#883",),
    truth=Truth(outcome="ok", slow="data_module"),
    uses={"data_module": "data_module"},
    stage=slow_store,
    options=("--timeout", "data_module=12", "--until", "data_module"),
    limit=240.0,
)
