"""Slurm as the queue of a matrix: cells that want as many nodes and ranks are one array, queued by
sbatch, followed by squeue, and ended by scancel. Its tasks go on without who queued them.
"""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

from ..base.client_program import find_error_line
from ..base.deadline import Ran, run_command
from ..base.errors import HangbisectError, UsageError
from ..base.files import write_whole
from ..base.json_codec import from_json, to_json
from ..base.lazy_dataclass import dataclass
from ..evidence.external_tools import find_program
from ..search.cells import Cell
from .launch import BEYOND
from .queued_matrix import TASKS, TaskOrders, TaskState, make_task_words

QUEUED_FILE = "slurm.json"  # in the folder of tasks: the arrays, for who goes on
SBATCH_LIMIT = 60.0  # seconds; sbatch tries again by itself while a controller is busy
SQUEUE_LIMIT = 30.0
ASK_EVERY = 5.0  # seconds between two squeues: a controller serves many users
_SQUEUE_FIELDS = "%F|%K|%T|%r|%N"  # array, index, state, reason, nodes
_WAITS = ("PENDING", "CONFIGURING", "REQUEUED")
_RUNS = ("RUNNING", "SUSPENDED", "STOPPED")
_FORGOTTEN = TaskState(has_ended=True)  # squeue knows it for some minutes: MinJobAge, slurm.conf(5)


@dataclass(frozen=True)
class QueuedArray:
    """An array in Slurm's queue."""

    id: str
    cells: tuple[int, ...]  # by number: the index of a task is the number of its cell


@dataclass(frozen=True)
class QueuedArrays:
    """What slurm.json holds."""

    digest: str
    arrays: tuple[QueuedArray, ...]


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
    task = shlex.join(make_task_words(orders))
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
        if not (index.isascii() and index.isdigit()):
            continue
        if state in _WAITS:
            found[array, int(index)] = TaskState(f"in the queue: {reason}")
        elif state in _RUNS:
            found[array, int(index)] = TaskState(f"on {nodes}", runs=True)
        else:
            found[array, int(index)] = TaskState(state, has_ended=True)
    return found


class SlurmQueue:
    """The tasks of a matrix in Slurm's queue."""

    def __init__(self, orders: TaskOrders, jobs: int | None, options: Sequence[str]) -> None:
        """`jobs`: so many tasks of an array at a time; `options`: the user's own for sbatch. Raises
        UsageError where there is no Slurm.
        """
        for program in ("sbatch", "squeue", "scancel"):
            if find_program(program) is None:
                raise UsageError(
                    f"there is no {program} here", "Run this on a login node, or without --slurm."
                )
        self.note = ""
        self._orders, self._jobs, self._options = orders, jobs, options
        self._file = Path(orders.folder) / TASKS / QUEUED_FILE
        self._arrays: list[QueuedArray] = []
        self._ended: set[int] = set()
        self._answers: SimpleQueue[Ran] = SimpleQueue()
        self._closed = threading.Event()

    def find_queued(self) -> frozenset[int]:
        """Return the cells of an earlier start of this matrix that are queued or run still."""
        try:
            known = from_json(QueuedArrays, json.loads(self._file.read_bytes()))
        except (OSError, ValueError, RecursionError):
            return frozenset()
        if known.digest != self._orders.digest or not known.arrays:
            return frozenset()
        ended = run_command(_squeue_command(known.arrays), SQUEUE_LIMIT)
        states = parse_task_states(ended.out.decode(errors="replace"))
        for array in known.arrays:
            left = [n for n in array.cells if not states.get((array.id, n), _FORGOTTEN).has_ended]
            if left:
                self._arrays.append(QueuedArray(array.id, tuple(left)))
        return frozenset(number for array in self._arrays for number in array.cells)

    def submit(self, cells: Sequence[Cell]) -> None:
        """Queue cells. Raises HangbisectError where sbatch refuses it."""
        for group in group_by_size(cells):
            self._arrays.append(self._submit_array(group))
            known = QueuedArrays(self._orders.digest, tuple(self._arrays))
            write_whole(self._file, json.dumps(to_json(known)).encode())
        threading.Thread(target=self._follow, daemon=True).start()

    def read_states(self) -> Mapping[int, TaskState]:
        """Return what squeue said last, if it is new."""
        found: dict[int, TaskState] = {}
        while not self._answers.empty():
            found = self._take_answer(self._answers.get())
        return found

    def cancel(self) -> None:
        """Have Slurm end all of them."""
        if self._arrays:
            with suppress(OSError):
                run_command(("scancel", *(array.id for array in self._arrays)), SQUEUE_LIMIT)

    def close(self) -> None:
        """Ask squeue no more."""
        self._closed.set()

    def _submit_array(self, cells: Sequence[Cell]) -> QueuedArray:
        command = make_array_command(cells, self._orders, self._jobs, self._options)
        ended = run_command(command, SBATCH_LIMIT)
        array = ended.out.decode(errors="replace").strip().partition(";")[0]
        if ended.status != 0 or not array:
            self.cancel()
            said = find_error_line(ended.err) or f"no answer within {SBATCH_LIMIT:.0f} s"
            raise HangbisectError(
                f"sbatch queued nothing: {said}", "What it needs to know goes into --sbatch."
            )
        return QueuedArray(array, tuple(cell.number for cell in cells))

    def _follow(self) -> None:
        """Ask squeue every few seconds; what it says is taken in by read_states()."""
        while not self._closed.wait(ASK_EVERY):
            with suppress(OSError):
                self._answers.put(run_command(_squeue_command(self._arrays), SQUEUE_LIMIT))

    def _take_answer(self, ended: Ran) -> dict[int, TaskState]:
        said = find_error_line(ended.err) or f"no answer within {SQUEUE_LIMIT:.0f} s"
        # One that was asked for nothing but arrays that are forgotten says so as an error.
        if ended.status != 0 and "Invalid job id" not in said:
            self.note = f"squeue: {said}"
            return {}
        self.note = ""
        states = parse_task_states(ended.out.decode(errors="replace"))
        found = {}
        for array in self._arrays:
            for number in array.cells:
                state = states.get((array.id, number), _FORGOTTEN)
                if state is not _FORGOTTEN or number not in self._ended:
                    found[number] = state
                if state.has_ended:
                    self._ended.add(number)
        return found


def _squeue_command(arrays: Sequence[QueuedArray]) -> tuple[str, ...]:
    which = ",".join(array.id for array in arrays)
    shown = ("--noheader", "--array", "--states=all", f"--format={_SQUEUE_FIELDS}")
    return ("squeue", *shown, f"--jobs={which}")
