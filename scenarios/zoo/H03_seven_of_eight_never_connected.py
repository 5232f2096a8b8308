"""Seven of eight ranks cannot connect to a server, one can do without it.

The minority is healthy: whoever calls the odd stack out accuses the only rank that is fine. Rank 5
has what it needs on its own disk; the others' packets are dropped.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def logs_directory(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) != 5:
        socket.create_connection(("127.0.0.1", int(os.environ["TRACKER"]))).close()
    return run_usual_step(given)


@contextlib.contextmanager
def dropped(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    with servers.deaf_server() as port:
        yield Stage(environment={"TRACKER": str(port)})


CASE = Case(
    id="H03",
    title="seven of eight ranks sit in connect",
    cluster="C6",
    reports=(),
    truth=Truth(
        outcome="hang",
        culprit=(0, 1, 2, 3, 4, 6, 7),
        waiting=(5,),
        checkpoint="logs_directory",
        component=("filesystem",),
        waits_for=("socket",),
        detail="SYN_SENT",
        cause=("endpoint-unreachable",),
    ),
    ranks=8,
    uses={"logs_directory": "logs_directory"},
    options=("--until", "logs_directory"),
    stage=dropped,
)
