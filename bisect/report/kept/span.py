"""A stretch of a rank's time. Facts only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# "step": of a pipeline, numbered; "own step": of a script of the user's own; "phase": of a step;
# "import": of a heavy module; "wait": for other ranks; "hang": nothing moved any more, or the rank
# never started; "training": past the first training steps of a script of the user's own.
Kind = Literal["step", "own step", "phase", "import", "wait", "hang", "training"]


@dataclass(frozen=True)
class Span:
    """What a rank was at, and when. Seconds since the first rank began."""

    kind: Kind
    name: str  # "wandb_logger", "process_group", "torch", "barrier after checkpoint 9", ...
    title: str  # for people: "WandbLogger ready"; the name where there is no other
    number: int | None  # of the checkpoint; None: it belongs to none
    start: float
    end: float | None  # None: it had not ended when the verdict was made
    depth: int  # how many spans of the same rank are around it


@dataclass(frozen=True)
class Row:
    """One rank."""

    rank: int
    host: str
    spans: tuple[Span, ...]  # by start, those around others first
    ended: float | None = None  # when it left, or its process ended; None: not before the verdict
    last_word: float | None = None  # when it last said anything
