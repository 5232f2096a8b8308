"""Ranks 1 to 3 wait for a key of a store that rank 0 sets once it has downloaded something.

"Rank 0 first" built from a TCPStore instead of a barrier. Rank 0's download never ends; three of
four stacks say "store" (pytorch/pytorch#134314 tells of such a key).
"""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def logs_directory(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    distributed = given.context.imports("torch.distributed")
    store = distributed.TCPStore(
        "127.0.0.1",
        int(os.environ["STORE_PORT"]),
        is_master=rank_number(given) == 0,
        timeout=datetime.timedelta(hours=1),
    )
    if rank_number(given) == 0:
        with socket.create_connection(("127.0.0.1", int(os.environ["MIRROR"]))) as mirror:
            mirror.sendall(b"GET /corpus HTTP/1.0\r\n\r\n")
            mirror.recv(65536)
        store.set("corpus", "ready")
    else:
        store.wait(["corpus"])
    return run_usual_step(given)


@contextlib.contextmanager
def silent_mirror(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    with servers.silent_server() as port, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
        probe.close()
        yield Stage(environment={"MIRROR": str(port), "STORE_PORT": str(free)})


CASE = Case(
    id="H18",
    title="ranks 1-3 wait for a key that stuck rank 0 would set",
    cluster="C7",
    reports=("pytorch/pytorch#134314",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1, 2, 3),
        checkpoint="logs_directory",
        component=("filesystem",),
        waits_for=("socket",),
        detail="ESTABLISHED",
        cause=("endpoint-silent",),
    ),
    ranks=4,
    uses={"logs_directory": "logs_directory"},
    options=("--until", "logs_directory"),
    stage=silent_mirror,
    limit=120.0,
)
