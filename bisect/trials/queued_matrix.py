"""The cells of a matrix as tasks of a queue that somebody else runs (Slurm, Ray), each on a node of
its own choice; their results gathered from the matrix's folder, which every node has to see.

A task runs its cell as `hangbisect matrix` does here, and writes what came of it, so that what was
done is found by who goes on (`--resume`), whatever became of who queued it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from ..base.files import PACKAGE, write_whole
from ..base.json_codec import from_json, to_json
from ..base.launchers import DIALECTS
from ..base.lazy_dataclass import dataclass
from ..report.matrix_text import record_cell
from ..search.cells import (
    JUDGED,
    Cell,
    CellOutcome,
    CellRun,
    CellState,
    RecordedCell,
    make_cell_run,
)
from .launch import stopping_by_signals
from .matrix import Matrix, MatrixContext, cell_mark, record_cell_run, take_recorded
from .resources import MachineShare

TASKS = "tasks"  # folder in the matrix's: results, and what tasks printed
# Seconds from the end of a task to its result: NFS shows a new file after 60 s at most (acdirmax in
# nfs(5)).
RESULT_LIMIT = 75.0
CANCEL_LIMIT = 60.0  # seconds for cancelled tasks to end: Slurm's KillWait is 30


@dataclass(frozen=True)
class TaskOrders:
    """What a task is told of its matrix."""

    file: str  # the scenario
    folder: str  # of the matrix
    started_in: str
    digest: str  # of all cells: a file that was changed meanwhile is another matrix


@dataclass(frozen=True)
class TaskState:
    """A task, as its queue has it."""

    note: str = ""  # what it waits for, or where it runs, or how it ended
    runs: bool = False
    has_ended: bool = False


class CellQueue(Protocol):
    """What has the tasks of a matrix started: SlurmQueue, RayQueue."""

    note: str  # what a person at the terminal should know

    def find_queued(self) -> frozenset[int]:
        """Return the numbers of the cells that an earlier start has left in the queue."""

    def submit(self, cells: Sequence[Cell]) -> None:
        """Queue cells. Raises HangbisectError where that is refused; then none is in the queue."""

    def read_states(self) -> Mapping[int, TaskState]:
        """Return what is new about its tasks, by the number of the cell. At once."""

    def cancel(self) -> None:
        """Have all tasks ended."""

    def close(self) -> None:
        """Ask no more."""


def make_task_words(orders: TaskOrders) -> tuple[str, ...]:
    """Return what a task is started by; the number of its cell comes after it."""
    return (sys.executable, PACKAGE, "matrix_cell", json.dumps(to_json(orders)))


def digest_cells(cells: Sequence[Cell], around: MatrixContext) -> str:
    """Return what tells these cells from those of a file that has been changed."""
    return sha256(" ".join(cell_mark(cell, around) for cell in cells).encode()).hexdigest()[:16]


class QueuedMatrix:
    """The cells of a matrix in a queue."""

    def __init__(
        self,
        cells: Sequence[Cell],
        around: MatrixContext,
        queue: CellQueue,
        *,
        recorded: Mapping[str, CellRun],
        keep: Callable[[Sequence[CellRun]], None],
        stopping: threading.Event,
    ) -> None:
        """`recorded`, `keep`, `stopping`: as in Matrix."""
        self._around, self._queue, self._keep, self._stopping = around, queue, keep, stopping
        self._cells = tuple(cells)
        self._marks = {cell.number: cell_mark(cell, around) for cell in cells}
        self._tasks = around.folder / TASKS
        self._ran = take_recorded(cells, around, recorded)
        self._states: dict[int, TaskState] = {}
        self._began: dict[int, float] = {}  # when each was first seen to run
        self._gone: dict[int, float] = {}  # when each was first seen to have ended
        self._cancelled: float | None = None

    @property
    def note(self) -> str:
        """What a person at the terminal should know."""
        return self._queue.note

    def start(self) -> None:
        """Queue what is neither done nor queued. Raises HangbisectError where that is refused."""
        self._tasks.mkdir(parents=True, exist_ok=True)
        self._gather(JUDGED)
        # What has left a result is over, whatever its queue says.
        queued = {n for n in self._queue.find_queued() if not self._result_file(n).exists()}
        missing = [c for c in self._cells if c.number not in queued | self._ran.keys()]
        for cell in missing:  # an older result of a cell that is run again is none of it
            self._result_file(cell.number).unlink(missing_ok=True)
        self._queue.submit(missing)

    def wait(self, limit: float) -> bool:
        """Return whether all is over, after `limit` seconds at most."""
        if self._stopping.is_set() and self._cancelled is None:
            self._cancelled = time.monotonic()
            self._queue.cancel()
        end, before = time.monotonic() + limit, len(self._ran)
        self._gather()
        self._take_states(self._queue.read_states(), time.monotonic())
        self._take_lost(time.monotonic())
        if len(self._ran) > before:
            self._keep(self.ran())
        if len(self._ran) == len(self._cells):
            return True
        time.sleep(max(0.0, end - time.monotonic()))
        return False

    def close(self) -> None:
        """Ask the queue no more."""
        self._queue.close()

    def ran(self) -> list[CellRun]:
        """Return the cells that have been run."""
        return [self._ran[number] for number in sorted(self._ran)]

    def now(self) -> list[CellState]:
        """Return every cell as it is now."""
        return [self._now(cell) for cell in self._cells]

    def _now(self, cell: Cell) -> CellState:
        ran, state = self._ran.get(cell.number), self._states.get(cell.number)
        if ran is not None or state is None:
            return CellState(cell, ran)
        began = self._began.get(cell.number)
        seconds = None if began is None else time.monotonic() - began
        return CellState(cell, None, (), seconds, state.note)

    def _take_states(self, found: Mapping[int, TaskState], now: float) -> None:
        for number, state in found.items():
            self._states[number] = state
            if state.runs:
                self._began.setdefault(number, now)
            if state.has_ended:
                self._gone.setdefault(number, now)

    def _result_file(self, number: int) -> Path:
        return self._tasks / f"{number}.json"

    def _gather(self, among: Collection[str] | None = None) -> None:
        """Take in the results that are there; only these, if it is said `among` which."""
        with suppress(OSError):
            names = set(os.listdir(self._tasks))
            left = [cell.number for cell in self._cells if cell.number not in self._ran]
            for number in left:
                file = self._result_file(number)
                ran = self._read_result(number) if file.name in names else None
                if ran is not None and (among is None or ran.result in among):
                    self._ran[number] = ran

    def _read_result(self, number: int) -> CellRun | None:
        try:
            text = self._result_file(number).read_bytes()
            ran = make_cell_run(from_json(RecordedCell, json.loads(text)))
        except (OSError, ValueError, RecursionError):
            return None
        if ran is None or ran.mark != self._marks[number]:
            return None
        if ran.result == "interrupted" and self._cancelled is None:
            return replace(ran, result="killed", where="its task was ended from outside")
        return ran

    def _take_lost(self, now: float) -> None:
        """Note the cells whose tasks have ended without a result."""
        cancelled = None if self._cancelled is None else now - self._cancelled
        for cell in self._cells:
            number = cell.number
            since = self._gone.get(number)
            gone = None if since is None else now - since
            came = judge_lost(number in self._began, gone, cancelled)
            if came is not None and number not in self._ran:
                where = self._describe_lost(number) if came == "killed" else ""
                self._ran[number] = record_cell_run(cell, self._around, came, where)

    def _describe_lost(self, number: int) -> str:
        state = self._states.get(number)
        ended = f" ({state.note})" if state is not None and state.note else ""
        return (
            f"its task ended{ended} and left no result in {self._tasks}: see {number}.out there, "
            "and whether the node sees that folder"
        )


def judge_lost(began: bool, gone: float | None, cancelled: float | None) -> CellOutcome | None:
    """Return what comes of a cell without a result, None: one may come yet. `began`: its task was
    seen to run; `gone`, `cancelled`: seconds since it was seen to have ended, and since we told
    Slurm to end it; None: it was not.
    """
    if cancelled is not None:
        is_over = cancelled > CANCEL_LIMIT or (gone is not None and not began)
        return "interrupted" if is_over else None
    return "killed" if gone is not None and gone > RESULT_LIMIT else None


# ---- on a node -----------------------------------------------------------------------------------


def run_task(
    cell: Cell, cells: Sequence[Cell], around: MatrixContext, orders: TaskOrders
) -> CellRun:
    """Run one cell in this task, leave what came of it in the matrix's folder, and return it."""
    if digest_cells(cells, around) != orders.digest:
        changed = f"{orders.file} was changed after this was queued"
        return _leave_result(cell, record_cell_run(cell, around, "not started", changed), orders)
    _hide_task_variables(cell)
    with stopping_by_signals() as stopping:
        share = MachineShare(alone=False)
        matrix = Matrix([cell], around, [share], recorded={}, keep=_keep_none, stopping=stopping)
        matrix.start()
        try:
            while not matrix.wait(1.0):
                pass
        finally:
            matrix.close()
        return _leave_result(cell, matrix.ran()[0], orders)


def _keep_none(ran: Sequence[CellRun]) -> None:
    """One cell is kept at its end."""


def _hide_task_variables(cell: Cell) -> None:
    """Remove the variables by which ranks that srun has started know their numbers: sbatch sets
    them for its script too, where a launcher that starts ranks itself hands them on.
    """
    if cell.launcher is not None:
        words = DIALECTS["srun"]
        for name in (words.rank, words.local_rank, words.world_size, words.local_world_size):
            os.environ.pop(name, None)
        os.environ.pop(words.node, None)


def _leave_result(cell: Cell, ran: CellRun, orders: TaskOrders) -> CellRun:
    text = json.dumps(to_json(record_cell(cell, ran)), ensure_ascii=False)
    write_whole(Path(orders.folder) / TASKS / f"{cell.number}.json", text.encode(errors="replace"))
    return ran
