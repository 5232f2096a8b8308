"""W&B's server accepts the connection and never answers: rank 0 sits in wandb.init, before fit.

The script reads logger.experiment itself (to name the run, to log its configuration) before the
Trainer exists. On the other ranks that is a dummy: they go on to init_process_group and wait there,
and their stacks are all that one sees of the hang in a 30 minutes' time-out
(leggedrobotics/rsl_rl#150).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def unanswered(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    with servers.silent_server() as port:
        url = f"http://127.0.0.1:{port}"
        yield Stage(environment={"WANDB_BASE_URL": url, "WANDB_API_KEY": "0" * 40})


CASE = Case(
    id="I11",
    title="W&B's server never answers, before fit",
    cluster="C3",
    reports=("wandb/wandb#5017", "leggedrobotics/rsl_rl#150", "wandb/wandb#10669"),
    culprit_goes="first",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1,),
        checkpoint="wandb_logger",
        component=("wandb",),
        waits_for=("process",),
        detail="wandb-core",
        cause=("service-silent",),
        avoids=("wandb=offline", "wandb=off"),
        call=r"^wandb\.init$",
        chain=(r"rank \d+ -> process \d+",),
        explained_by=(r"127\.0\.0\.1:\d+",),
    ),
    stage=unanswered,
)
