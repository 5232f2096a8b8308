"""What a pipeline is (an ordered list of steps, each ending in a checkpoint), and the pipelines by
name.

To add one: a module in pipelines/ with a PIPELINE, and its name in PIPELINES.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from .checkpoints import LAUNCHER, Checkpoint
from .command_words import pipeline_of
from .errors import UsageError, nearest
from .lazy_dataclass import dataclass


@dataclass(frozen=True)
class Step:
    """What is done before a checkpoint is reached. `run` returns the step's product.

    A step's module imports the standard library only at its top: everything else comes in through
    `Context.imports`, inside the step, so that an import that hangs is seen to.
    """

    checkpoint: Checkpoint
    run: Callable[[Any], Any]  # of a Context (rank/walk.py)
    skippable: bool = False
    # An argument and the value that leaves the component out: then not even --use does the step.
    given_up: tuple[str, str] | None = None


@dataclass(frozen=True)
class Pipeline:
    """Steps in the order of their checkpoints, numbered from 1.

    `aliases` are other names of steps, for the command line. Past the checkpoint or phase
    `shows_itself` a start has shown that it works.
    """

    name: str
    steps: tuple[Step, ...]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    shows_itself: str
    aliases: tuple[tuple[str, str], ...] = ()
    # Functions of the user's own that --use takes beside steps: a step itself calls them.
    called: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Number the checkpoints by their place."""
        numbered = (
            replace(step, checkpoint=replace(step.checkpoint, number=number))
            for number, step in enumerate(self.steps, 1)
        )
        object.__setattr__(self, "steps", tuple(numbered))

    @property
    def table(self) -> tuple[Checkpoint, ...]:
        """All checkpoints, with the launcher's: no step of a rank, but verdicts speak of it."""
        return (LAUNCHER, *(step.checkpoint for step in self.steps))

    @property
    def skippable(self) -> tuple[str, ...]:
        """Names of the steps that --skip may leave out."""
        return tuple(step.checkpoint.name for step in self.steps if step.skippable)


_ROOT = __name__.partition(".")[0]
PIPELINES = ("startup", "generation", "finetuning", "replay")


def find_pipeline(name: str) -> Pipeline:
    """Return the pipeline of that name, which must be one of PIPELINES.

    Imports that pipeline's table and steps alone, and none of the libraries it works with.
    """
    if name not in PIPELINES:
        raise KeyError(name)
    found: Pipeline = import_module(f"{_ROOT}.pipelines.{name}").PIPELINE
    return found


def find_walked_pipeline(command: Sequence[str]) -> Pipeline:
    """Return the pipeline that a command of ours walks; the first for a name that there is not,
    of which its ranks complain.
    """
    name = pipeline_of(command)
    return find_pipeline(name if name in PIPELINES else PIPELINES[0])


def known_names(command: Sequence[str]) -> tuple[str, ...]:
    """Return those of the pipeline of ours that a command walks."""
    return names_of(pipeline_of(command))


def names_of(pipeline: str) -> tuple[str, ...]:
    """Return the names of a pipeline's checkpoints and phases, () if there is no such pipeline."""
    if pipeline not in PIPELINES:
        return ()
    table = find_pipeline(pipeline).table
    return (*(row.name for row in table), *(p.name for row in table for p in row.phases))


def check_timeouts(names: Iterable[str], command: Sequence[str]) -> None:
    """Raise UsageError for a name of --timeout that a command of ours does not have; "" is none."""
    known = known_names(command)
    for name in names:
        if name and known and name not in known:
            raise UsageError(
                f"--timeout names {name!r}, which is none of {', '.join(known)}"
                f"{nearest(name, known)}"
            )
