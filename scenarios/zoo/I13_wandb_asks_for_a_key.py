"""W&B has no key and a terminal, so it asks for one, and nobody sees the question.

"(1) Create a W&B account (2) Use an existing W&B account (3) Don't visualize my results" scrolls by
between the lines of other ranks, or goes to a tmux window; rank 0 reads from the terminal. Somebody
pressed Enter and it went on (orrzohar/PROB#62).

Here the job has a terminal of its own, at which nobody types.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def wandb_logger(given: Any) -> Any:
    """As people do it: the run's name is read at once."""
    how = given.args.wandb
    if how == "off":
        return False
    given.context.imports("wandb")
    loggers = given.context.imports("pytorch_lightning.loggers")
    logger = loggers.WandbLogger(
        project="small", save_dir=given.logs_directory, offline=how == "offline"
    )
    _ = logger.experiment
    return logger


@contextlib.contextmanager
def at_a_terminal(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts.processes import TERMINAL

    yield Stage(prefix=TERMINAL, environment={"WANDB_SILENT": "false", "TERM": "xterm"})


CASE = Case(
    id="I13",
    title="W&B asks for a key at the terminal",
    cluster="C18",
    reports=("orrzohar/PROB#62",),
    culprit_goes="first",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1,),
        checkpoint="wandb_logger",
        component=("wandb",),
        waits_for=("input",),
        cause=("wandb-prompt",),
        avoids=("wandb=offline", "wandb=off"),
    ),
    uses={"wandb_logger": "wandb_logger"},
    stage=at_a_terminal,
)
