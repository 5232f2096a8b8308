"""Rank 1 connects to a port whose packets a firewall drops: SYN_SENT, for two minutes and more.

horovod/horovod#584, NVIDIA/nccl#913: an address of an interface that goes nowhere. The kernel
tries again six times (tcp_syn_retries), so it ends by itself, long after everybody has given
up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def firewall(place: CasePlace) -> Iterator[Stage]:
    """A port at which packets are dropped."""
    from hangbisect.zoo.parts import servers

    with servers.deaf_server() as port:
        yield Stage(environment={"LICENSE_PORT": str(port)})


def choose_accelerator(given: Any) -> Any:
    """Return the accelerator; rank 1 asks for a license first."""
    import os
    import socket

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 1:
        address = ("127.0.0.1", int(os.environ["LICENSE_PORT"]))
        with socket.create_connection(address) as server:
            server.sendall(b"license\n")
    return run_usual_step(given)


CASE = Case(
    id="J38",
    title="rank 1 connects to where packets are dropped",
    cluster="C6",
    reports=("horovod/horovod#584", "NVIDIA/nccl#913"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="accelerator",
        component=("accelerator",),
        waits_for=("socket",),
        detail="SYN_SENT",
        cause=("endpoint-unreachable",),
    ),
    stage=firewall,
    uses={"accelerator": "choose_accelerator"},
)
