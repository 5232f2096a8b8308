"""The cells of a matrix: what a scenario asks to run, and how each cell ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Literal

from ..base.lazy_dataclass import dataclass
from ..base.schema_types import Duration, Ordinal
from ..base.verdict_facts import Verdict

if TYPE_CHECKING:
    from .scenario import Scenario


# Axes that are no toggles: keys of the file that a cell may have of its own.
PLACES = ("launcher", "nodes", "ranks")
DEFAULT_LAUNCHER = "torchrun"
ALONE = "python"  # the launcher that starts one process, whatever the number of ranks
DEFAULT_LIMIT = 3600.0  # seconds: a start that nobody waits for longer
MOST_CELLS = 1000
AS_IT_IS = "as you run it"


@dataclass(frozen=True)
class Cell:
    """One launch of a matrix, before anything is known of this machine."""

    number: int  # from 1
    name: str
    setting: Mapping[str, str]
    launcher: str | None  # None: it is in the command
    nodes: int
    ranks: int  # on each node
    words: tuple[str, ...]  # a pipeline's, or the user's whole command
    pipeline: str | None
    environment: Mapping[str, str]
    limit: float  # seconds


def count_cells(scenario: Scenario) -> int:
    """Return how many cells there are before any is excluded."""
    if scenario.axes:
        return prod(len(values) for values in scenario.axes.values())
    return len(scenario.settings) or 1


def list_cells(scenario: Scenario) -> tuple[Cell, ...]:
    """Return all cells, numbered from 1."""
    return tuple(_cells_of_axes(scenario) if scenario.axes else _cells_of_settings(scenario))


def _cells_of_settings(scenario: Scenario) -> Iterator[Cell]:
    whole = _base_cell(scenario)
    if not scenario.settings:
        yield whole
    for number, one in enumerate(scenario.settings, 1):
        yield replace(
            whole,
            number=number,
            name=one.name,
            setting=one.toggles,
            launcher=one.launcher or whole.launcher,
            nodes=one.nodes or whole.nodes,
            ranks=one.ranks or whole.ranks,
            words=(*whole.words, *one.arguments),
            environment={**whole.environment, **one.environment},
            limit=one.limit or whole.limit,
        )


def _cells_of_axes(scenario: Scenario) -> Iterator[Cell]:
    whole, number = _base_cell(scenario), 0
    for values in product(*scenario.axes.values()):
        each = dict(zip(scenario.axes, values, strict=True))
        if any(all(each[axis] in one[axis] for axis in one) for one in scenario.exclude):
            continue
        number += 1
        yield replace(
            whole,
            number=number,
            name=" ".join(f"{axis}={value}" for axis, value in each.items()),
            setting={name: value for name, value in each.items() if name not in PLACES},
            launcher=each.get("launcher", whole.launcher),
            nodes=int(each.get("nodes", whole.nodes)),
            ranks=int(each.get("ranks", whole.ranks)),
        )


def _base_cell(scenario: Scenario) -> Cell:
    """Return the cell that says no more than the file does."""
    walked = scenario.walked
    return Cell(
        number=1,
        name=AS_IT_IS,
        setting={},
        launcher=scenario.launcher or (DEFAULT_LAUNCHER if walked else None),
        nodes=scenario.nodes,
        ranks=scenario.ranks,
        words=scenario.arguments if walked else scenario.command or (),
        pipeline=walked,
        environment=scenario.environment,
        limit=scenario.limit or DEFAULT_LIMIT,
    )


# "killed": what started or watched it was ended from outside, so nobody judged it. "not started":
# there was nothing to watch. "interrupted": the matrix was.
CellOutcome = Literal["ok", "slow", "hang", "crash", "killed", "not started", "interrupted"]
MatrixStatus = Literal[0, 3, 4, 5, 130]

# A cell that ended in one of these has been judged: nobody needs to run it again.
JUDGED = ("ok", "slow", "hang", "crash")
# One that ended in another way ended at any time: how long others take it does not tell.
TO_THEIR_END = ("ok", "slow", "hang")
SIGNALLED = 128  # what a shell adds to the number of the signal that ended a process
EXIT_STATUS: Mapping[CellOutcome, MatrixStatus] = {
    "ok": 0,
    "slow": 4,
    "not started": 5,
    "killed": 5,
    "crash": 5,
    "hang": 3,
    "interrupted": 130,
}


@dataclass(frozen=True)
class CellRun:
    """A cell that was run."""

    number: int
    name: str
    setting: Mapping[str, str]
    result: CellOutcome
    where: str  # "at checkpoint 9 in wandb.init, rank 0"; why it was not started; "" if well
    seconds: float
    command: tuple[str, ...]
    environment: Mapping[str, str]  # set beside the user's own
    run_dir: str
    mark: str  # tells a cell from all others, today and after an interruption
    cause: str | None = None  # id in the catalogue of causes


@dataclass(frozen=True)
class RecordedCell:
    """A cell in matrix.json."""

    number: Ordinal  # from 1; the folder's name begins with it
    name: str  # as the scenario names it
    setting: Mapping[str, str]  # values by toggle
    launcher: str | None = None  # name or path; null: it is in the command
    nodes: Ordinal = 1  # for the launcher
    ranks: Ordinal = 1  # on each node, for the launcher
    result: CellOutcome | None = None  # null: not run
    where: str = ""  # where it hung or crashed, or why it was not judged
    cause: str | None = None  # id of a known cause, docs/causes/
    seconds: Duration | None = None  # that it took
    command: tuple[str, ...] = ()  # what was started, secrets masked
    # what was set beside the user's own, secrets masked
    environment: Mapping[str, str] = field(default_factory=dict)
    run_dir: str | None = None  # its run folder
    mark: str | None = None  # the same for the same cell when resumed


def make_cell_run(recorded: RecordedCell) -> CellRun | None:
    """Return a cell that was run from its record; None: it was not run."""
    if recorded.result is None or recorded.mark is None:
        return None
    return CellRun(
        number=recorded.number,
        name=recorded.name,
        setting=recorded.setting,
        result=recorded.result,
        where=recorded.where,
        seconds=recorded.seconds or 0.0,
        command=recorded.command,
        environment=recorded.environment,
        run_dir=recorded.run_dir or "",
        mark=recorded.mark,
        cause=recorded.cause,
    )


@dataclass(frozen=True)
class RecordedMatrix:
    """What matrix.json holds."""

    scenario: str  # its file, or the name of one of ours
    title: str  # what it examines, in a line
    started_in: str  # the folder in which cells are started
    started: str  # UTC, ISO 8601
    seconds: Duration  # since the last start of the matrix
    jobs: Ordinal  # cells side by side
    status: MatrixStatus  # exit status, as far as it is known
    complete: bool  # every cell was run
    cells: tuple[RecordedCell, ...]  # in the order of the scenario
    versions: Mapping[str, str] = field(default_factory=dict)  # of what ran it
    schema: Literal[1] = 1  # 1


@dataclass(frozen=True)
class RankPosition:
    """Where a rank is, for a live table."""

    rank: int
    checkpoint: int | None  # the one that it works towards; None in a script of the user's own
    title: str
    phase: str | None
    since: float  # monotonic
    waits: bool = False  # at our barrier


@dataclass(frozen=True)
class CellState:
    """A cell while the matrix runs."""

    cell: Cell
    ran: CellRun | None = None  # None: it waits, or is under way
    ranks: tuple[RankPosition, ...] = ()
    seconds: float | None = None  # since it was started; None: it waits, or has ended
    note: str = ""  # where it is queued or runs, where that is not this machine


def judge_cell(verdict: Verdict | None, status: int | None, stopped: bool) -> CellOutcome:
    """Return a cell's result by the `status` of its run (None: killed); `stopped`: by us."""
    outcome = verdict.outcome if verdict else None
    if stopped:
        return "interrupted"
    if status is None or outcome == "interrupted" or (outcome is None and status > SIGNALLED):
        return "killed"
    if outcome == "silent":  # of a start that was made to be ended, there is nothing more to come
        return "hang"
    if outcome not in JUDGED:
        return "not started"
    came: CellOutcome = outcome
    return came


def why_unjudged(came: CellOutcome, status: int | None, trouble: str) -> str:
    """Return why a cell was not judged; `trouble` is what its launch says of it."""
    if came != "killed" or status is None:
        return "" if came == "interrupted" else trouble
    by = f" by signal {status - SIGNALLED}" if status > SIGNALLED and status != 130 else ""
    return f"its launcher was ended from outside{by}"


def matrix_exit_status(results: Iterable[CellOutcome]) -> MatrixStatus:
    """Return the exit status of a matrix: of the worst cell."""
    worst = {"ok": 0, "slow": 1, "not started": 2, "killed": 3, "crash": 4, "hang": 5}
    order = {**worst, "interrupted": 6}
    return EXIT_STATUS[max(results, key=lambda result: order[result], default="ok")]


def estimate_seconds_left(
    ended: Iterable[float], under_way: Iterable[float], waiting: int, jobs: int
) -> float | None:
    """Return about how long the rest takes: as long a cell as those that have `ended` took, and
    those that have taken longer already.

    `under_way` are the seconds that running cells have had. None while nothing has ended.
    """
    known, now = list(ended), list(under_way)
    if not known:
        return None
    usual = sum(known) / len(known)
    known += [had for had in now if had > usual]
    each = sum(known) / len(known)
    running = [max(each - had, 0.0) for had in now]
    work = sum(running) + waiting * each
    return max([work / jobs, *running])
