"""A matrix from its file to its answer: what `hangbisect matrix` does, and matrix.json, which is
written after every cell, and from which an interrupted matrix goes on.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Protocol

from ..base.errors import UsageError
from ..base.files import stamp, write_whole
from ..base.json_codec import to_json
from ..base.lazy_dataclass import dataclass
from ..base.words import terminal_width
from ..monitor.child_processes import REPORT_FILE, make_reports_now
from ..report.matrix_text import (
    LiveLines,
    LiveTable,
    MatrixResult,
    matrix_junit,
    record_matrix,
    result_table,
    summarise_matrix,
)
from ..search.cells import (
    EXIT_STATUS,
    JUDGED,
    TO_THEIR_END,
    Cell,
    CellRun,
    CellState,
    RecordedMatrix,
    estimate_seconds_left,
    list_cells,
    make_cell_run,
)
from .isolation_request import read_recorded
from .launch import stopping_by_signals
from .matrix import Matrix, MatrixContext, cell_mark, cell_run_dir, format_launch, make_launch
from .queued_matrix import TASKS, CellQueue, QueuedMatrix, TaskOrders, digest_cells, run_task
from .ray_queue import RayQueue
from .resources import MachineShare, share_among_cells
from .scenario_file import load_scenario, locate_value, require_modules, scenario_names
from .slurm_queue import SlurmQueue, group_by_size, make_array_command

if TYPE_CHECKING:
    from ..search.scenario import Scenario

_DRAWN_EVERY = 0.25  # seconds


@dataclass(frozen=True)
class MatrixRequest:
    """The words of the command line, read. None: not said."""

    file: str | None
    jobs: int | None = None
    resume: str | None = None
    run_dir: str | None = None
    dry_run: bool = False
    plain: bool = False
    json: bool = False
    slurm: bool = False
    sbatch: tuple[str, ...] = ()  # options of the user's own for it
    ray: bool = False


class RunningMatrix(Protocol):
    """Cells under way, here or in a queue: Matrix, QueuedMatrix."""

    @property
    def note(self) -> str:
        """What a person at the terminal should know."""

    def start(self) -> None:
        """Start the first cells."""

    def wait(self, limit: float) -> bool:
        """Return whether all is over, after `limit` seconds at most."""

    def now(self) -> list[CellState]:
        """Return every cell as it is now."""

    def ran(self) -> list[CellRun]:
        """Return the cells that have been run."""

    def close(self) -> None:
        """Give back what it has."""


class MatrixView(Protocol):
    """What shows a matrix while it runs."""

    def show(self, cells: Sequence[CellState], left: float | None, note: str) -> None:
        """Show how things are."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def run_matrix(asked: MatrixRequest) -> int:
    """Do what was asked, and return the exit status. Raises UsageError, MissingLibrary."""
    require_modules("junitparser", "pydantic", "yaml")
    if asked.sbatch and not asked.slurm:
        raise UsageError("--sbatch is for --slurm alone", "hangbisect matrix FILE --slurm")
    if asked.slurm and asked.ray:
        raise UsageError("--slurm and --ray are two queues", "One of them.")
    file, done, folder = _choose_scenario(asked)
    scenario = load_scenario(file)
    listed, around = _list_cells(scenario, folder)
    queued = asked.slurm or asked.ray
    jobs = asked.jobs or (len(listed) if queued else 1)
    # Of a queue's nodes a cell has what the queue gives it.
    each = share_among_cells(
        scenario,
        listed,
        1 if queued else jobs,
        os.environ,
        lambda path: locate_value(file, path),
    )
    named = file if file in scenario_names() else os.path.abspath(file)
    orders = TaskOrders(
        named, str(around.folder), str(around.started_in), digest_cells(listed, around)
    )
    if asked.dry_run:
        left = [cell for cell in listed if cell_mark(cell, around) not in done]
        if asked.slurm:
            return _print_arrays(left, orders, asked)
        return _print_commands(left, around, each)
    queue = _make_queue(asked, orders)
    record = MatrixRecord(folder)
    results = MatrixResult(
        scenario=named,
        title=scenario.title,
        started_in=str(around.started_in),
        folder=str(folder),
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        seconds=0.0,
        jobs=jobs,
        cells=listed,
        ran=(),
    )

    def make_running(
        keep: Callable[[Sequence[CellRun]], None], stopping: threading.Event
    ) -> RunningMatrix:
        if queue is None:
            return Matrix(listed, around, each, recorded=done, keep=keep, stopping=stopping)
        return QueuedMatrix(listed, around, queue, recorded=done, keep=keep, stopping=stopping)

    view = _choose_view(asked.plain)
    results = _run_cells(results, make_running, None if queued else len(each), record, view)
    record.write(results)
    record.write_junit(results)
    return _print_answer(results, asked, record)


def _make_queue(asked: MatrixRequest, orders: TaskOrders) -> CellQueue | None:
    """Return the queue that is asked for, None: cells are run here. Raises UsageError where there
    is none.
    """
    if asked.slurm:
        return SlurmQueue(orders, asked.jobs, asked.sbatch)
    return RayQueue(orders, asked.jobs) if asked.ray else None


def run_cell_task(orders: TaskOrders, number: int) -> int:
    """Run the cell of that number as a task of a queue; return the exit status. Raises UsageError
    for a file that is not there any more, MissingLibrary.
    """
    listed, around = _list_cells(load_scenario(orders.file), Path(orders.folder))
    cell = next((one for one in listed if one.number == number), None)
    if cell is None:
        raise UsageError(
            f"{orders.file} has no cell {number}", "It was changed after it was queued."
        )
    return EXIT_STATUS[run_task(cell, listed, around, orders).result]


def _list_cells(scenario: Scenario, folder: Path) -> tuple[tuple[Cell, ...], MatrixContext]:
    """Return the cells of a matrix, and what they have in common."""
    from ..search.scenario_checks import toggles_of_scenario  # its models are made of pydantic

    around = MatrixContext(
        table=toggles_of_scenario(scenario),
        watch=scenario.watch.options(),
        folder=folder.absolute(),
        started_in=Path.cwd(),
        environment=scenario.environment,
    )
    return list_cells(scenario), around


# ---- what is to be run ---------------------------------------------------------------------------


def _choose_scenario(asked: MatrixRequest) -> tuple[str, Mapping[str, CellRun], Path]:
    """Return the scenario's file, what is done already, and the folder of the matrix."""
    if asked.resume:
        return _resume_matrix(asked, Path(asked.resume))
    if not asked.file:
        raise UsageError("matrix needs a scenario", "hangbisect matrix recommended")
    name = Path(asked.file).stem
    folder = Path(asked.run_dir or os.path.join("runs", f"{stamp()}-matrix-{name}"))
    if (folder / MATRIX_FILE).exists() and not asked.dry_run:
        raise UsageError(
            f"{folder} holds a matrix already", f"Go on with it: {_resume_command(folder)}"
        )
    return asked.file, {}, folder


def _resume_matrix(asked: MatrixRequest, folder: Path) -> tuple[str, Mapping[str, CellRun], Path]:
    if asked.run_dir:
        raise UsageError("--resume goes on in the folder that it names: leave --run-dir out")
    known = read_matrix(folder)
    here, there = Path.cwd(), Path(known.started_in)
    if here != there:  # relative paths in commands would mean something else
        raise UsageError(
            f"{folder} is a matrix of commands that are started in {there}, not in {here}",
            f"cd {shlex.quote(str(there))} && {_resume_command(folder.absolute())}",
        )
    return asked.file or known.scenario, cells_done(known), folder


def _resume_command(folder: Path) -> str:
    return f"hangbisect matrix --resume {shlex.quote(str(folder))}"


def _print_commands(
    listed: Sequence[Cell], around: MatrixContext, each: Sequence[MachineShare]
) -> int:
    """Print the command of every cell, as the next one of so many at a time would be started.

    Return the exit status: 5 if one cannot be started.
    """
    status = 0
    for index, cell in enumerate(listed):
        share = each[index % len(each)]
        print(f"# {cell.number} {cell.name}")
        scratch = None if share.alone else Path(gettempdir(), f"hb-{os.getpid():x}-{cell.number}")
        port = None if share.alone else 20000 + index
        apart = (
            share.environment(cell_run_dir(cell, around), scratch, port) if scratch and port else {}
        )
        try:
            print(format_launch(make_launch(cell, around, apart, port), scratch))
        except UsageError as error:
            print(f"# cannot be started: {error}")
            status = EXIT_STATUS["not started"]
    return status


def _print_arrays(listed: Sequence[Cell], orders: TaskOrders, asked: MatrixRequest) -> int:
    """Print what would queue the cells, and what to do then; return the exit status, 0."""
    print(f"mkdir -p {shlex.quote(os.path.join(orders.folder, TASKS))}")
    for group in group_by_size(listed):
        for cell in group:
            print(f"# {cell.number} {cell.name}")
        print(shlex.join(make_array_command(group, orders, asked.jobs, asked.sbatch)))
    return 0


# ---- running it ----------------------------------------------------------------------------------


def _run_cells(
    results: MatrixResult,
    make_running: Callable[[Callable[[Sequence[CellRun]], None], threading.Event], RunningMatrix],
    jobs: int | None,
    record: MatrixRecord,
    view: MatrixView,
) -> MatrixResult:
    """Run the cells and return what came of them. `jobs`: at a time, None: as a queue lets them."""
    began = time.monotonic()

    def so_far(ran: Sequence[CellRun], interrupted: bool = False) -> MatrixResult:
        seconds = time.monotonic() - began
        return replace(results, ran=tuple(ran), seconds=seconds, interrupted=interrupted)

    with stopping_by_signals() as stopping:
        matrix = make_running(lambda ran: record.write(so_far(ran, stopping.is_set())), stopping)
        record.write(so_far(matrix.ran(), interrupted=True))
        matrix.start()
        try:
            while not matrix.wait(_DRAWN_EVERY):
                now = matrix.now()
                note = "ends what is under way" if stopping.is_set() else ""
                left = None if jobs is None else _seconds_left(now, jobs)
                view.show(now, left, note or record.trouble or matrix.note)
            view.show(matrix.now(), None, record.trouble)
        except KeyboardInterrupt:
            pass  # the second one: what is under way is not waited for, and ends without us
        finally:
            view.close()
            matrix.close()
        ended = [one for one in matrix.ran() if one.result != "interrupted"]
        return so_far(matrix.ran(), stopping.is_set() and len(ended) < len(results.cells))


def _seconds_left(now: Sequence[CellState], jobs: int) -> float | None:
    ended = [one.ran.seconds for one in now if one.ran and one.ran.result in TO_THEIR_END]
    under_way = [one.seconds for one in now if one.seconds is not None]
    waiting = sum(one.ran is None and one.seconds is None for one in now)
    return estimate_seconds_left(ended, under_way, waiting, jobs)


def _choose_view(plain: bool) -> MatrixView:
    dumb = os.environ.get("TERM", "dumb") == "dumb" or "NO_COLOR" in os.environ
    if plain or dumb or not sys.stderr.isatty():
        return LiveLines(sys.stderr)
    return LiveTable(sys.stderr)


# ---- the answer ----------------------------------------------------------------------------------


def _print_answer(results: MatrixResult, asked: MatrixRequest, record: MatrixRecord) -> int:
    if asked.json:
        print(json.dumps(to_json(record_matrix(results)), indent=1))
    else:
        terminal = sys.stdout.isatty() and not asked.plain
        colours = terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        width = None if asked.plain else terminal_width()
        print(
            "\n".join(
                [
                    *result_table(results, width=width, colours=colours),
                    "",
                    summarise_matrix(results),
                ]
            )
        )
        print(f"report  {_name_files(results)}, {JUNIT_FILE} beside it")
    if record.trouble:
        print(f"hangbisect: {record.trouble}", file=sys.stderr)
    if results.interrupted:
        queue = ["--slurm"] * asked.slurm + ["--ray"] * asked.ray
        queue += [f"--sbatch={shlex.join(asked.sbatch)}"] if asked.sbatch else []
        again = " ".join([_resume_command(Path(results.folder)), *map(shlex.quote, queue)])
        print(f"interrupted; to go on: {again}", file=sys.stderr)
    if _is_to_be_reported(results):
        sys.stdout.flush()
        make_reports_now(results.folder, trials=True)
    return results.status


def _name_files(results: MatrixResult) -> str:
    matrix = os.path.join(results.folder, MATRIX_FILE)
    if not _is_to_be_reported(results):
        return matrix
    return f"{os.path.join(results.folder, REPORT_FILE)}: paste it into an issue; {MATRIX_FILE}"


def _is_to_be_reported(results: MatrixResult) -> bool:
    return results.status != 0 and not results.interrupted


MATRIX_FILE, JUNIT_FILE = "matrix.json", "junit.xml"


class MatrixRecord:
    """The folder of one matrix."""

    def __init__(self, folder: Path) -> None:
        """Make the folder. Raises UsageError if it cannot be made or written in."""
        self.folder = folder
        self.trouble = ""  # why the last writing failed
        try:
            folder.mkdir(parents=True, exist_ok=True)
            reached = os.access(folder, os.W_OK | os.X_OK)
        except OSError as error:
            raise UsageError(
                f"{folder} cannot be made: {error.strerror}", "Name another with --run-dir."
            ) from None
        if not reached:
            raise UsageError(f"nothing can be written in {folder}", "Name another with --run-dir.")

    def write(self, results: MatrixResult) -> None:
        """Write what is known. A disk that is full must not end the cells that run."""
        text = json.dumps(to_json(record_matrix(results)), indent=1, ensure_ascii=False) + "\n"
        self._write(MATRIX_FILE, text)

    def write_junit(self, results: MatrixResult) -> None:
        """Write JUnit XML."""
        self._write(JUNIT_FILE, matrix_junit(results))

    def _write(self, name: str, text: str) -> None:
        try:
            write_whole(self.folder / name, text.encode(errors="replace"))
        except OSError as error:
            self.trouble = f"{self.folder / name} cannot be written: {error.strerror}"


def read_matrix(folder: Path) -> RecordedMatrix:
    """Return what is recorded in a folder. Raises UsageError if no matrix can be gone on with."""
    return read_recorded(RecordedMatrix, folder / MATRIX_FILE, "a matrix")


def cells_done(record: RecordedMatrix) -> dict[str, CellRun]:
    """Return by mark the cells that were judged: one that was killed, interrupted or never started
    is run again.
    """
    ran = filter(None, map(make_cell_run, record.cells))
    return {one.mark: one for one in ran if one.result in JUDGED}
