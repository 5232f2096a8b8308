"""Two ranks of eight are stuck, in different things: rank 2 at a lock, rank 5 in a server's hands.

One bad node shows itself in more than one way (wandb/wandb#2207, huggingface/datasets#4420).
Both are at fault; naming the first that one finds is half an answer.

Both causes are right, for each culprit has one, and a verdict names one cause; of what they wait
for the same holds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def bad_node(place: CasePlace) -> Iterator[Stage]:
    """A lock that somebody has, and a server that does not answer."""
    from hangbisect.zoo.parts import processes, servers

    with processes.hold_flock(place.tmp / "runs.lock"), servers.silent_server() as port:
        lock = str(place.tmp / "runs.lock")
        yield Stage(environment={"RUNS_LOCK": lock, "REGISTRY_PORT": str(port)})


def make_logs(given: Any) -> Any:
    """Return the logs directory, entered in a list and in a registry."""
    import fcntl
    import os
    import socket

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    made = run_usual_step(given)
    if rank_number(given) == 2:
        with open(os.environ["RUNS_LOCK"], "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
    if rank_number(given) == 5:
        with socket.create_connection(("127.0.0.1", int(os.environ["REGISTRY_PORT"]))) as registry:
            registry.recv(1)
    return made


CASE = Case(
    id="J33",
    title="ranks 2 and 5 of 8 are stuck in different things",
    cluster="C9",
    reports=("wandb/wandb#2207", "huggingface/datasets#4420"),
    truth=Truth(
        outcome="hang",
        culprit=(2, 5),
        waiting=(0, 1, 3, 4, 6, 7),
        checkpoint="logs_directory",
        component=("filesystem",),
        waits_for=("lock", "socket"),
        detail="runs.lock|127.0.0.1",
        cause=("file-lock-held", "endpoint-silent"),
    ),
    ranks=8,
    stage=bad_node,
    uses={"logs_directory": "make_logs"},
    options=("--until", "logs_directory"),
)
