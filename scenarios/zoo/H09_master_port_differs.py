"""Each rank has a MASTER_PORT of its own: rank 1 knocks where nobody listens.

Every rank called find_free_port() (pytorch/pytorch#53395). The store's client tries again and
again for half an hour; rank 0 waits for it in init_process_group.
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
        os.environ["MASTER_PORT"] = os.environ["FREE_PORT"]
    return run_usual_step(given)


@contextlib.contextmanager
def free_port(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    with servers.refusing_port() as port:
        yield Stage(environment={"FREE_PORT": str(port)})


CASE = Case(
    id="H09",
    title="MASTER_PORT of rank 1 is another",
    cluster="C1",
    reports=("pytorch/pytorch#53395",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="training",
        component=("strategy",),
        waits_for=("store",),
        cause=("different-master",),
        call="init_process_group$",
        chain=(r"rank \d+ -> store",),
        explained_by=("MASTER_PORT",),
    ),
    options=("--wandb", "off"),
    uses={"trainer": "trainer"},
    stage=free_port,
)
