"""What a pipeline is: an ordered list of steps, each ending in a checkpoint."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..checkpoints import Checkpoint

if TYPE_CHECKING:
    from ..rank.context import Context


@dataclass(frozen=True)
class Step:
    """What is done before a checkpoint is reached. `run` returns the step's product.

    A step's module imports the standard library only at its top: everything else comes in through
    `Context.imports`, inside the step, so that an import that hangs is seen to.
    """

    checkpoint: Checkpoint
    run: Callable[[Context], Any]
    skippable: bool = False
    # An argument and the value that leaves the component out: then not even --use does the step.
    given_up: tuple[str, str] | None = None


@dataclass(frozen=True)
class Pipeline:
    """Steps in the order of their checkpoints, numbered from 1.

    `launcher` is checkpoint 0: no step of a rank, but a row of the table that verdicts speak of.
    `aliases` are other names of steps, for the command line. Past the checkpoint or phase
    `shows_itself` a start has shown that it works.
    """

    name: str
    launcher: Checkpoint
    steps: tuple[Step, ...]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    shows_itself: str
    aliases: tuple[tuple[str, str], ...] = ()
    # Functions of the user's own that --use takes beside steps: a step itself calls them.
    called: tuple[str, ...] = ()

    @property
    def table(self) -> tuple[Checkpoint, ...]:
        """All checkpoints, with number 0."""
        return (self.launcher, *(step.checkpoint for step in self.steps))

    @property
    def skippable(self) -> tuple[str, ...]:
        """Names of the steps that --skip may leave out."""
        return tuple(step.checkpoint.name for step in self.steps if step.skippable)
