"""W&B asks git about the folder that the job stands in, and git does not come back.

A repository with a million files, or one on a network disk: `git` is a child of the rank, and the
rank is in subprocess below wandb (wandb/wandb#708, #737: "process did not respond").

Here a program called git that waits for a server.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def wandb_logger(given: Any) -> Any:
    how = given.args.wandb
    if how == "off":
        return False
    given.context.imports("wandb")
    loggers = given.context.imports("pytorch_lightning.loggers")
    logger = loggers.WandbLogger(project="small", save_dir=given.logs_directory, offline=True)
    _ = logger.experiment
    return logger


@contextlib.contextmanager
def stuck_git(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import processes, servers

    with servers.silent_server() as port:
        yield Stage(environment={"PATH": processes.put_stuck_on_path(place.folder, "git", port)})


CASE = Case(
    id="H12",
    title="W&B asks git, and git does not come back",
    cluster="C3",
    reports=("wandb/wandb#708", "wandb/wandb#737"),
    culprit_goes="first",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1,),
        checkpoint="wandb_logger",
        component=("wandb",),
        waits_for=("process",),
        detail="git",
        cause=("wandb-git",),
        avoids=("wandb=off",),
    ),
    uses={"wandb_logger": "wandb_logger"},
    stage=stuck_git,
)
