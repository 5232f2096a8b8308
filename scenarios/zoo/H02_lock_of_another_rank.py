"""Rank 2 of 4 has a file lock and waits for a server; the three others wait for the lock.

Three of four ranks stand in flock(), so a look at most stacks says "a lock problem". Whoever holds
it is the one to ask: a download that never ends, with the cache's lock in its hand
(huggingface/huggingface_hub#2543).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def logs_directory(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) != 2:
        time.sleep(1)
    with open(os.environ["CACHE_LOCK"], "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with socket.create_connection(("127.0.0.1", int(os.environ["MIRROR"]))) as mirror:
            mirror.sendall(b"GET /weights HTTP/1.0\r\n\r\n")
            mirror.recv(65536)
    return run_usual_step(given)


@contextlib.contextmanager
def silent_mirror(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    with servers.silent_server() as port:
        lock = str(place.tmp / "cache.lock")
        yield Stage(environment={"CACHE_LOCK": lock, "MIRROR": str(port)})


CASE = Case(
    id="H02",
    title="rank 2 of 4 hangs with a lock that the others wait for",
    cluster="C9",
    reports=("huggingface/huggingface_hub#2543", "huggingface/datasets#1942"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(2,),
        waiting=(0, 1, 3),
        checkpoint="logs_directory",
        component=("filesystem",),
        waits_for=("socket",),
        detail="ESTABLISHED",
        cause=("endpoint-silent",),
        call=r"socket\.recv",
        chain=(r"-> lock .*cache\.lock", r"rank \d+ -> 127\.0\.0\.1:\d+"),
        explained_by=(r"127\.0\.0\.1:\d+",),
    ),
    ranks=4,
    uses={"logs_directory": "logs_directory"},
    options=("--until", "logs_directory"),
    stage=silent_mirror,
)
