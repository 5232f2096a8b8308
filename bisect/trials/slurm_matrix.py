"""The cells of a matrix as tasks of Slurm arrays: queued by sbatch, one array for all cells that
want as many nodes and ranks; followed by squeue; their results gathered from the matrix's folder,
which every node has to see.

A task runs its cell as `hangbisect matrix` does here, and writes what came of it, so that it also
goes on without who queued it: `--resume` finds what was done, and waits for what is still queued.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue

from ..base.deadline import Ran, run_command
from ..base.errors import HangbisectError, UsageError
from ..base.files import PACKAGE, write_whole
from ..base.json_codec import from_json, to_json
from ..base.launchers import DIALECTS
from ..base.lazy_dataclass import dataclass
from ..evidence.external_tools import find_program
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
from .launch import BEYOND, stopping_by_signals
from .matrix import Matrix, MatrixContext, cell_mark, record_cell_run
from .resources import MachineShare

TASKS = "tasks"  # folder in the matrix's: results, and what tasks printed
QUEUED_FILE = "slurm.json"  # in it: the arrays, for who goes on
SBATCH_LIMIT = 60.0  # seconds; sbatch tries again by itself while a controller is busy
SQUEUE_LIMIT = 30.0
ASK_EVERY = 5.0  # seconds between two squeues: a controller serves many users
# Seconds from the end of a task to its result: NFS shows a new file after 60 s at most (acdirmax in
# nfs(5)).
RESULT_LIMIT = 75.0
CANCEL_LIMIT = 60.0  # seconds for cancelled tasks to end: Slurm's KillWait is 30
_SQUEUE_FIELDS = "%F|%K|%T|%r|%N"  # array, index, state, reason, nodes
_GOES_ON = ("PENDING", "RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "REQUEUED")


@dataclass(frozen=True)
class TaskOrders:
    """What a task is told of its matrix."""

    file: str  # the scenario
    folder: str  # of the matrix
    started_in: str
    digest: str  # of all cells: a file that was changed meanwhile is another matrix


@dataclass(frozen=True)
class QueuedArray:
    """An array in Slurm's queue."""

    id: str
    cells: tuple[int, ...]  # by number: the index of a task is the number of its cell


@dataclass(frozen=True)
class QueuedMatrix:
    """What slurm.json holds."""

    digest: str
    arrays: tuple[QueuedArray, ...]


@dataclass(frozen=True)
class TaskState:
    """A task, as squeue has it."""

    state: str  # "PENDING", "RUNNING", "TIMEOUT"
    note: str = ""  # what it waits for, or on which nodes it is

    @property
    def goes_on(self) -> bool:
        """Whether it has not ended."""
        return self.state in _GOES_ON


FORGOTTEN = TaskState("gone")  # squeue knows a task for some minutes (MinJobAge in slurm.conf(5))


def digest_cells(cells: Sequence[Cell], around: MatrixContext) -> str:
    """Return what tells these cells from those of a file that has been changed."""
    return sha256(" ".join(cell_mark(cell, around) for cell in cells).encode()).hexdigest()[:16]


def group_by_size(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Return the cells by the nodes and ranks that they want: the tasks of an array are alike."""
    found: dict[tuple[int, int], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.nodes, cell.ranks), []).append(cell)
    return list(found.values())


def make_array_command(
    cells: Sequence[Cell], orders: TaskOrders, jobs: int | None, options: Sequence[str]
) -> tuple[str, ...]:
    """Return the sbatch that queues cells of one size, at most `jobs` at a time. What the user says
    in `options` comes last, and is what counts.
    """
    numbers = ",".join(str(cell.number) for cell in cells)
    task = shlex.join((sys.executable, PACKAGE, "matrix_cell", json.dumps(to_json(orders))))
    limit = max(cell.limit for cell in cells) + BEYOND
    return (
        *("sbatch", "--parsable", "--no-requeue", "--job-name=hangbisect-matrix"),
        f"--array={numbers}" + (f"%{jobs}" if jobs else ""),
        *(f"--nodes={cells[0].nodes}", f"--ntasks-per-node={cells[0].ranks}"),
        f"--time={int(limit // 60) + 1}",
        *(f"--chdir={orders.started_in}", f"--output={orders.folder}/{TASKS}/%a.out"),
        *options,
        f'--wrap=exec {task} "$SLURM_ARRAY_TASK_ID"',
    )


def parse_task_states(printed: str) -> dict[tuple[str, int], TaskState]:
    """Return the tasks that squeue printed (_SQUEUE_FIELDS), by array and index."""
    found = {}
    for line in printed.splitlines():
        array, _, rest = line.strip().partition("|")
        index, state, reason, nodes = (*rest.split("|"), "", "", "")[:4]
        if index.isascii() and index.isdigit():
            note = f"in the queue: {reason}" if state == "PENDING" else f"on {nodes}"
            found[array, int(index)] = TaskState(state, note)
    return found


class SlurmMatrix:
    """The cells of a matrix in Slurm's queue."""

    def __init__(
        self,
        cells: Sequence[Cell],
        around: MatrixContext,
        orders: TaskOrders,
        *,
        jobs: int | None,
        options: Sequence[str],
        recorded: Mapping[str, CellRun],
        keep: Callable[[Sequence[CellRun]], None],
        stopping: threading.Event,
    ) -> None:
        """`jobs`: so many tasks of an array at a time; `options`: the user's own for sbatch.
        `recorded`, `keep`, `stopping` as in Matrix. Raises UsageError where there is no Slurm.
        """
        for program in ("sbatch", "squeue", "scancel"):
            if find_program(program) is None:
                raise UsageError(
                    f"there is no {program} here", "Run this on a login node, or without --slurm."
                )
        self.note = ""
        self._around, self._orders, self._keep = around, orders, keep
        self._jobs, self._options, self._stopping = jobs, options, stopping
        self._cells = tuple(cells)
        self._marks = {cell.number: cell_mark(cell, around) for cell in cells}
        self._tasks = Path(orders.folder) / TASKS
        self._ran: dict[int, CellRun] = {}
        for cell in cells:
            known = recorded.get(self._marks[cell.number])
            if known is not None:
                self._ran[cell.number] = replace(known, number=cell.number)
        self._arrays: list[QueuedArray] = []
        self._states: dict[int, TaskState] = {}
        self._began: dict[int, float] = {}  # when each was first seen to run
        self._gone: dict[int, float] = {}  # when each was first seen to have ended
        self._cancelled: float | None = None
        self._answers: SimpleQueue[Ran] = SimpleQueue()
        self._closed = threading.Event()
        self._follower = threading.Thread(target=self._follow, daemon=True)

    def start(self) -> None:
        """Queue what is neither done nor queued. Raises HangbisectError where sbatch refuses it."""
        self._tasks.mkdir(parents=True, exist_ok=True)
        self._gather(JUDGED)
        self._arrays = self._find_queued_before()
        queued = {number for array in self._arrays for number in array.cells}
        missing = [c for c in self._cells if c.number not in queued | self._ran.keys()]
        for cell in missing:  # an older result of a cell that is run again is none of it
            self._result_file(cell.number).unlink(missing_ok=True)
        for group in group_by_size(missing):
            self._arrays.append(self._queue(group))
            self._remember()
        self._follower.start()

    def wait(self, limit: float) -> bool:
        """Return whether all is over, after `limit` seconds at most."""
        if self._stopping.is_set() and self._cancelled is None:
            self._cancel()
        end, before = time.monotonic() + limit, len(self._ran)
        self._gather()
        while not self._answers.empty():
            self._take_states(self._answers.get(), time.monotonic())
        self._take_lost(time.monotonic())
        if len(self._ran) > before:
            self._keep(self.ran())
        if len(self._ran) == len(self._cells):
            return True
        self._closed.wait(max(0.0, end - time.monotonic()))
        return False

    def close(self) -> None:
        """Ask squeue no more."""
        self._closed.set()

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

    # ---- the queue -------------------------------------------------------------------------------

    def _queue(self, cells: Sequence[Cell]) -> QueuedArray:
        command = make_array_command(cells, self._orders, self._jobs, self._options)
        ended = run_command(command, SBATCH_LIMIT)
        array = ended.out.decode(errors="replace").strip().partition(";")[0]
        if ended.status != 0 or not array:
            self._cancel()
            said = last_line(ended.err) or f"no answer within {SBATCH_LIMIT:.0f} s"
            raise HangbisectError(
                f"sbatch queued nothing: {said}", "What it needs to know goes into --sbatch."
            )
        return QueuedArray(array, tuple(cell.number for cell in cells))

    def _remember(self) -> None:
        known = QueuedMatrix(self._orders.digest, tuple(self._arrays))
        write_whole(self._tasks / QUEUED_FILE, json.dumps(to_json(known)).encode())

    def _find_queued_before(self) -> list[QueuedArray]:
        """Return the arrays of an earlier start of this matrix, with those of their tasks that are
        queued or run still.
        """
        try:
            known = from_json(QueuedMatrix, json.loads((self._tasks / QUEUED_FILE).read_bytes()))
        except (OSError, ValueError, RecursionError):
            return []
        if known.digest != self._orders.digest or not known.arrays:
            return []
        ended = run_command(_squeue_command(known.arrays), SQUEUE_LIMIT)
        states = parse_task_states(ended.out.decode(errors="replace"))
        found = []
        for array in known.arrays:
            left = [n for n in array.cells if states.get((array.id, n), FORGOTTEN).goes_on]
            left = [number for number in left if not self._result_file(number).exists()]
            if left:
                found.append(QueuedArray(array.id, tuple(left)))
        return found

    def _follow(self) -> None:
        """Ask squeue every few seconds; what it says is taken in by wait()."""
        while not self._closed.wait(ASK_EVERY):
            with suppress(OSError):
                self._answers.put(run_command(_squeue_command(self._arrays), SQUEUE_LIMIT))

    def _take_states(self, ended: Ran, now: float) -> None:
        said = last_line(ended.err) or f"no answer within {SQUEUE_LIMIT:.0f} s"
        # One that was asked for nothing but arrays that are forgotten says so as an error.
        if ended.status != 0 and "Invalid job id" not in said:
            self.note = f"squeue: {said}"
            return
        self.note = ""
        found = parse_task_states(ended.out.decode(errors="replace"))
        for array in self._arrays:
            for number in array.cells:
                state = found.get((array.id, number), FORGOTTEN)
                if state is not FORGOTTEN or number not in self._gone:
                    self._states[number] = state
                if state.state == "RUNNING":
                    self._began.setdefault(number, now)
                if not state.goes_on:
                    self._gone.setdefault(number, now)

    def _cancel(self) -> None:
        self._cancelled = time.monotonic()
        if self._arrays:
            with suppress(OSError):
                run_command(("scancel", *(array.id for array in self._arrays)), SQUEUE_LIMIT)

    # ---- results ---------------------------------------------------------------------------------

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
        state = self._states.get(number, FORGOTTEN)
        ended = "" if state is FORGOTTEN else f" ({state.state})"
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


def last_line(text: str) -> str:
    """Return the last line that is not empty, "" where there is none."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _squeue_command(arrays: Sequence[QueuedArray]) -> tuple[str, ...]:
    which = ",".join(array.id for array in arrays)
    shown = ("--noheader", "--array", "--states=all", f"--format={_SQUEUE_FIELDS}")
    return ("squeue", *shown, f"--jobs={which}")


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
