"""A native library of rank 1 connects to its process manager, which does not answer.

MPI_Init without mpirun, or with another one's (Lightning-AI/pytorch-lightning#20049: `from
mpi4py import MPI` in Trainer(); KimMeen/Time-LLM#196). No Python frame tells: it is one ctypes
call, in recv(). Here the library is compiled for the occasion.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth

LIBRARY = """
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int MPI_Init(void *argc, void *argv) {
    struct sockaddr_in manager = {.sin_family = AF_INET};
    char answer[64];
    int server = socket(AF_INET, SOCK_STREAM, 0);
    manager.sin_port = htons(atoi(getenv("PMI_PORT")));
    manager.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(server, (struct sockaddr *)&manager, sizeof manager))
        return 1;
    return recv(server, answer, sizeof answer, 0) > 0 ? 0 : 1;
}
"""


@contextlib.contextmanager
def process_manager(place: CasePlace) -> Iterator[Stage]:
    """A process manager that accepts and says nothing, and the library that asks it."""
    from hangbisect.zoo.parts import processes, servers

    library = processes.compile_library(place.folder, "mpi", LIBRARY)
    with servers.silent_server() as port:
        yield Stage(environment={"MPI_LIBRARY": str(library), "PMI_PORT": str(port)})


def make_trainer(given: Any) -> Any:
    """Return the Trainer; rank 1 starts MPI."""
    import ctypes
    import os

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    trainer = run_usual_step(given)
    if rank_number(given) == 1:
        ctypes.CDLL(os.environ["MPI_LIBRARY"]).MPI_Init(None, None)
    return trainer


CASE = Case(
    id="J30",
    title="MPI_Init of rank 1 waits for its process manager",
    cluster="C19",
    reports=("Lightning-AI/pytorch-lightning#20049", "KimMeen/Time-LLM#196"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="trainer",
        component=("trainer",),
        waits_for=("socket",),
        detail="127.0.0.1",
        cause=("mpi-init",),
    ),
    stage=process_manager,
    uses={"trainer": "make_trainer"},
    needs=("gcc",),
)
