"""One rank has a MASTER_ADDR that leads nowhere: its packets are never answered.

A wrong interface, a firewall that drops, an address of another network: the rank's connect() to the
store stays in SYN_SENT, the others wait for it in init_process_group (NVIDIA/nccl#913,
pytorch/pytorch#67547). The last line is the same as if a rank were missing.

Here the job has a network of its own, in which one address swallows all packets. Tools that read
only their own network's sockets see nothing of it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def trainer(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 1:
        os.environ["MASTER_ADDR"] = "10.255.255.1"
    return run_usual_step(given)


@contextlib.contextmanager
def swallows(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts.system import own_network

    yield Stage(prefix=own_network(unanswered=True))


CASE = Case(
    id="I08",
    title="MASTER_ADDR of rank 1 never answers",
    cluster="C6",
    reports=("pytorch/pytorch#67547", "NVIDIA/nccl#913", "pytorch/pytorch#150532"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="training",
        component=("strategy",),
        waits_for=("socket",),
        detail=r"10\.255\.255\.1",
        cause=("master-unroutable",),
        call="init_process_group$",
        explained_by=(r"10\.255\.255\.1",),
    ),
    options=("--wandb", "off"),
    uses={"trainer": "trainer"},
    stage=swallows,
    needs=("root", "network namespace"),
)
