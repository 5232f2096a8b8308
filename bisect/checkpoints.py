"""What a pipeline is made of. Apart from the other facts, for ranks need no more than this."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Phase:
    """A named part of a checkpoint's step, with a deadline of its own (None: never late)."""

    name: str
    component: str
    deadline: float | None


@dataclass(frozen=True)
class Checkpoint:
    """A row of a pipeline's table."""

    number: int
    name: str
    title: str
    component: str
    deadline: float
    suspect: bool = False
    phases: tuple[Phase, ...] = ()
