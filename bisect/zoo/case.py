"""What a case of the zoo is: a real job, what is done to it, and the answer that is right.

Imported by cases, and so also inside ranks: the standard library only, and nothing that is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

Outcome = Literal["ok", "hang", "slow", "crash"]
# How a case's job is started: as our own pipeline, as a script of its own below `hangbisect run`,
# or as that script alone, at which `hangbisect attach` looks once it stands still.
Under = Literal["pipeline", "run", "attach"]
ROLES = "ZOO_ROLES"  # in a rank's environment: which rank of the case each rank plays


@dataclass(frozen=True)
class Truth:
    """What really happens, whatever any tool says of it.

    For a hang all of it is compared. For a crash `culprit` are the ranks that may be named (the
    first one that fails takes the others with it), and `component` only where it is given. A case
    that is `ok` is a control: nothing in it may be called a hang.
    """

    outcome: Outcome
    culprit: tuple[int, ...] = ()  # all ranks whose fault it is, dead and absent ones too
    # Right too for `attach`, which has no log: what ranks have called before is on no stack.
    culprit_by_stacks: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()  # ranks that only wait for these; they must never be blamed
    checkpoint: str | None = None  # its name: "wandb_logger"; the first that not every rank reached
    component: tuple[str, ...] = ()  # any of these is right
    waits_for: tuple[str, ...] = ()  # kinds (facts.WaitKind), any of which is right
    detail: str = ""  # regular expression for what is waited for, its process included
    cause: tuple[str, ...] = ()  # ids of the catalogue; "unknown" where none is right as well
    # What makes it go away, each word "toggle=value" (toggles/table.py). Several strings: any
    # of them; several words in one string: all of them together.
    avoids: tuple[str, ...] = ()
    # Regular expressions, compared where they are given: found in the call that the verdict names,
    # each in one edge of its chain ("rank 0 -> socket 10.0.0.1:80"), and each in the sentences that
    # explain the cause.
    call: str = ""
    chain: tuple[str, ...] = ()
    explained_by: tuple[str, ...] = ()
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
    # Where the one culprit may be put in a world of another size (place_in_world): on any rank,
    # only on rank 0 where a library decides that, on all of them; "": not another size.
    culprit_goes: Literal["", "anywhere", "first", "everywhere"] = ""
    under: tuple[Under, ...] = ("pipeline", "run", "attach")  # in which ways it makes sense
    limit: float = 180.0  # seconds for the whole job; then it is ended, and the answer is wrong


_EACH_RANK = 45.0  # seconds that one rank more may make a start longer, on two cores


def place_in_world(case: Case, ranks: int, culprit: int = 0) -> Case:
    """Return `case` with so many ranks, and its culprit at `culprit` where that is one rank.

    Each rank plays a rank of the case as it is written (in_rank.rank_number), and the truth
    follows. Raises ValueError where the case cannot be placed so.
    """
    truth, goes = case.truth, case.culprit_goes
    if not goes or ranks < 2 or not 0 <= culprit < ranks:
        raise ValueError(f"{case.id} cannot have {ranks} ranks with {culprit} to blame")
    if goes == "everywhere":
        roles = [rank % case.ranks for rank in range(ranks)]
        truth = replace(truth, culprit=tuple(range(ranks)))
        where = f"all of {ranks}"
    else:
        (written,) = truth.culprit
        if goes == "first" and culprit != written:
            raise ValueError(f"{case.id}: only rank {written} can be to blame")
        others = [role for role in range(case.ranks) if role != written]
        roles = [others[rank % len(others)] for rank in range(ranks)]
        roles[culprit] = written
        waiting = tuple(rank for rank in range(ranks) if rank != culprit)
        truth = replace(truth, culprit=(culprit,), waiting=waiting if truth.waiting else ())
        where = f"rank {culprit} of {ranks}"
    return replace(
        case,
        title=f"{case.title} ({where})",
        truth=truth,
        ranks=ranks,
        environment={**case.environment, ROLES: ",".join(map(str, roles))},
        limit=max(case.limit, 90 + _EACH_RANK * ranks),
    )
