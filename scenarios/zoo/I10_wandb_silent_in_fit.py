"""W&B's server accepts the connection and never answers: rank 0 sits in wandb.init, inside fit.

WandbLogger starts W&B only when its experiment is first read: in Lightning's setup hook. So the
process group is up, the other ranks are one line further in the barrier of that hook, and it is
they who look stuck in torch.distributed (EleutherAI/bergson PR 249, s-JoL/Open-Llama#47). After
about two minutes W&B gives up: "Run initialization has timed out" (wandb/wandb#5017, #7671).

The connection is not the rank's: its child wandb-core has it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def wandb_logger(given: Any) -> Any:
    """A logger as people make it: nothing has happened yet."""
    how = given.args.wandb
    if how == "off":
        return False
    given.context.imports("wandb")
    loggers = given.context.imports("pytorch_lightning.loggers")
    return loggers.WandbLogger(
        project="small", save_dir=given.logs_directory, offline=how == "offline"
    )


@contextlib.contextmanager
def unanswered(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    with servers.silent_server() as port:
        url = f"http://127.0.0.1:{port}"
        yield Stage(environment={"WANDB_BASE_URL": url, "WANDB_API_KEY": "0" * 40})


CASE = Case(
    id="I10",
    title="W&B's server never answers, in Lightning's setup",
    cluster="C3",
    reports=("wandb/wandb#5017", "wandb/wandb#7671", "EleutherAI/bergson PR 249"),
    culprit_goes="first",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1,),
        checkpoint="training",
        component=("wandb",),
        waits_for=("process",),
        detail="wandb-core",
        cause=("service-silent",),
        avoids=("wandb=offline", "wandb=off"),
        call=r"^wandb\.init$",
        chain=(r"rank \d+ -> process \d+",),
        explained_by=(r"127\.0\.0\.1:\d+",),
    ),
    uses={"wandb_logger": "wandb_logger"},
    stage=unanswered,
)
