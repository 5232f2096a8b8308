"""What a case of the zoo is: a real job, what is done to it, and the answer that is right.

Imported by cases, and so also inside ranks: the standard library only, and nothing that is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Outcome = Literal["ok", "hang", "slow", "crash"]


@dataclass(frozen=True)
class Truth:
    """What really happens, whatever any tool says of it.

    For a hang all of it is compared. For a crash `culprit` are the ranks that may be named (the
    first one that fails takes the others with it), and `component` only where it is given. A case
    that is `ok` is a control: nothing in it may be called a hang.
    """

    outcome: Outcome
    culprit: tuple[int, ...] = ()  # all ranks whose fault it is, dead and absent ones too
    waiting: tuple[int, ...] = ()  # ranks that only wait for these; they must never be blamed
    checkpoint: str | None = None  # its name: "wandb_logger"; the first that not every rank reached
    component: tuple[str, ...] = ()  # any of these is right
    waits_for: tuple[str, ...] = ()  # kinds (facts.WaitKind), any of which is right
    detail: str = ""  # regular expression for what is waited for, its process included
    cause: tuple[str, ...] = ()  # ids of the catalogue; "unknown" where none is right as well
    # What makes it go away, each word "toggle=value" (toggles/table.py). Several strings: any
    # of them; several words in one string: all of them together.
    avoids: tuple[str, ...] = ()
    slow: str | None = None  # the checkpoint or phase that verdict.json must list in slow_steps


@dataclass(frozen=True)
class CasePlace:
    """Where a case happens. Both are there for this one run, and are removed after it."""

    folder: Path  # what the job stands in: the case's file lies here, the run folder is "run"
    tmp: Path  # for sockets, locks, images: short, and not the job's own TMPDIR


@dataclass(frozen=True)
class Stage:
    """What a prepared outside world asks of the job."""

    environment: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()  # for the pipeline
    prefix: tuple[str, ...] = ()  # words before the launcher's: ("unshare", "--net", ...)


@dataclass(frozen=True)
class Case:
    """One way to hang, or a control that must not be called one.

    `uses` names functions of the case's own module that do a step in place of the pipeline's own:
    {"trainer": "make_trainer"} becomes `--use trainer=MODULE:make_trainer`.
    """

    id: str  # "I10": the letter and number that the file's name begins with
    title: str  # a line of a table: "W&B server accepts and never answers"
    cluster: str  # of causes: "C3", or "control"
    reports: tuple[str, ...]  # public: "wandb/wandb#5017"
    truth: Truth
    ranks: int = 2
    launcher: Literal["torchrun", "python"] = "torchrun"  # "python": no launcher, one process
    pipeline: str = "startup"
    options: tuple[str, ...] = ()  # words for the pipeline: ("--timeout", "wandb_logger=4")
    environment: Mapping[str, str] = field(default_factory=dict)
    uses: Mapping[str, str] = field(default_factory=dict)
    # Prepares the outside world (servers, holders of locks, namespaces, mounts) and undoes it.
    stage: Callable[[CasePlace], AbstractContextManager[Stage]] | None = None
    needs: tuple[str, ...] = ()  # of zoo/case_files.py: without them it is skipped, and said so
    limit: float = 180.0  # seconds for the whole job; then it is ended, and the answer is wrong
    left_out: str = ""  # why it cannot be run here at all; it is listed all the same
