"""The steps that this rank is in: begun, told, ended.

A loop over the same call (a file each, a shard each) is said a few times and told some more: SAID
covers a start-up that loads a tokenizer and a model or two, TOLD one that loads the shards of a
large model one by one. What comes after that costs nothing and is watched as what lies between two
steps.
"""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .row import Row

SAID = 3  # lines for a step of one name
TOLD = 50  # messages for it
# Numbers and titles of the checkpoints of the startup pipeline that steps correspond to.
CHECKPOINTS = {
    "arguments": (2, "Args parsed"),
    "tokenizer": (4, "Tokenizer loaded"),
    "model": (5, "Model created"),
    "lightning_module": (6, "LLMModule ready"),
    "data_module": (7, "DataModule ready"),
    "accelerator": (8, "Accelerator configured"),
    "wandb_logger": (9, "WandbLogger ready"),
    "trainer": (11, "Trainer ready"),
    "training": (12, "Training finished"),
}
Tell = Callable[..., None]


@dataclass(frozen=True)
class Open:
    """A step that has begun."""

    row: Row
    k: int  # its occurrence, from 1
    said: bool


class Steps:
    """The steps of this process's main thread."""

    def __init__(self, tell: Tell, say: Callable[[str], None]) -> None:
        """`tell` the monitor, `say` a line."""
        self.open: list[Open] = []
        self.changed: Callable[[], None] = lambda: None  # called before a step begins
        self.ended: Callable[[Row], None] = lambda row: None  # called after one ended
        self._tell = tell
        self._say = say
        self._counts: dict[str, int] = {}
        self._process = os.getpid()
        self._thread = _thread.get_ident()

    def begin(self, row: Row) -> Open | None:
        """A call begins; return its step, None where it is none.

        None are those of other threads and of forked children, a step that is open already under
        its name, what torch.distributed consists of, and a call that has been told often enough.
        """
        if row.once and row.step in self._counts:  # first of all: it is on the way of each batch
            return None
        if _thread.get_ident() != self._thread or os.getpid() != self._process:
            return None
        if any(one.row.step == row.step for one in self.open):
            return None
        if row.of_torchs_groups and any(one.row.of_torchs_groups for one in self.open):
            return None
        k = self._counts.get(row.step, 0) + 1
        if k > TOLD:
            return None
        self._counts[row.step] = k
        self.changed()
        step = Open(row, k, k <= SAID)
        self._tell("begin", **as_message(row, k, len(self.open)))
        self.open.append(step)
        if step.said:
            self._say(f"About to {_call(row)}...")
        return step

    def go_on_with(self, open_before: Sequence[Open]) -> None:
        """Tell of steps that are open already, for who hears it does not know them."""
        for step in open_before:
            self._counts[step.row.step] = step.k
            self._tell("begin", **as_message(step.row, step.k, len(self.open)))
            self.open.append(step)

    def end(self, step: Open, error: BaseException | None) -> None:
        """It ends, with whatever was begun inside it."""
        if step not in self.open or os.getpid() != self._process:
            return
        del self.open[self.open.index(step) :]
        self._tell("end", step=step.row.step, k=step.k, failed=error is not None)
        if error is not None:
            if step.said:
                self._say(f"{step.row.call} raised {type(error).__name__}")
        elif step.said:
            self._say(done(step.row, step.k))
        self.ended(step.row)


def as_message(row: Row, k: int, depth: int) -> dict[str, Any]:
    """Return what the monitor is told of a step that begins, the `k`-th of its name, with `depth`
    steps open around it.
    """
    return {
        "step": row.step,
        "k": k,
        "depth": depth,
        "call": row.call if row.where else "",
        "title": row.title,
        "component": row.component,
        "deadline": row.deadline,
        "checkpoint": row.checkpoint,
        "phase": row.phase,
    }


def done(row: Row, k: int) -> str:
    """Return the line that says that a step is done."""
    name, title = row.step, row.title
    if row.checkpoint and not row.phase:
        number, title = CHECKPOINTS[row.checkpoint]
        name = str(number)
    return f"CHECKPOINT {name}: {title}" + (f" (no. {k})" if k > 1 else "")


def _call(row: Row) -> str:
    if not row.where:  # a step that the script names itself
        return f"begin {row.call}"
    return row.call if row.call.startswith("import ") else f"call {row.call}"
