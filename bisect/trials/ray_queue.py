"""Ray as the queue of a matrix: each cell is a task that Ray starts where it has a core for each
rank, and a GPU if there are any. Its tasks end with who queued them.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

from ..base.errors import HangbisectError, UsageError
from ..base.json_codec import from_json
from ..search.cells import Cell
from .queued_matrix import TASKS, TaskOrders, TaskState, make_task_words
from .ray_tasks import END_LIMIT, RayOrders, RayTask, RayWord, make_ray_words, make_tasks_line

READY_LIMIT = 60.0  # seconds for Ray to be imported and to answer
_QUEUED = TaskState("in the queue: Ray has no room for it yet")


class RayQueue:
    """The tasks of a matrix in a Ray cluster."""

    def __init__(self, orders: TaskOrders, jobs: int | None) -> None:
        """`jobs`: so many tasks at a time."""
        self.note = ""
        self._orders, self._jobs = orders, jobs
        self._client: subprocess.Popen[bytes] | None = None
        self._cells: tuple[int, ...] = ()
        self._refused: SimpleQueue[str] = SimpleQueue()  # why, "": it is not
        self._states: SimpleQueue[tuple[int, TaskState]] = SimpleQueue()

    def find_queued(self) -> frozenset[int]:
        """Return the empty set: tasks end with who queued them."""
        return frozenset()

    def submit(self, cells: Sequence[Cell]) -> None:
        """Queue cells. Raises UsageError for one that wants several nodes, HangbisectError where
        Ray cannot be started.
        """
        for cell in cells:
            if cell.nodes > 1:
                raise UsageError(
                    f"the cell {cell.name!r} wants {cell.nodes} nodes, and a task of Ray has one",
                    "Slurm has tasks of several: hangbisect matrix FILE --slurm",
                )
        if not cells:
            return
        self._cells = tuple(cell.number for cell in cells)
        tasks = tuple(self._make_task(cell) for cell in cells)
        orders = RayOrders(folder=self._orders.started_in, jobs=self._jobs)
        try:
            self._client = subprocess.Popen(
                make_ray_words(orders),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C on the terminal is not for it
            )
        except OSError as error:
            raise HangbisectError(f"the client of Ray cannot be started: {error}") from None
        for number in self._cells:
            self._states.put((number, _QUEUED))
        threading.Thread(target=self._read_words, args=(self._client,), daemon=True).start()
        assert self._client.stdin is not None
        with suppress(OSError):  # it says itself why it is gone
            self._client.stdin.write(f"{make_tasks_line(tasks)}\n".encode())
            self._client.stdin.flush()
        try:
            refused = self._refused.get(timeout=READY_LIMIT)
        except Empty:
            refused = f"no Ray cluster answers within {READY_LIMIT:.0f} s"
        if refused:
            self._client.kill()
            raise HangbisectError(refused, "RAY_ADDRESS names a cluster; `ray status` asks it.")

    def read_states(self) -> Mapping[int, TaskState]:
        """Return what Ray has said since it was asked last."""
        found: dict[int, TaskState] = {}
        while not self._states.empty():
            number, state = self._states.get()
            found[number] = state
        return found

    def cancel(self) -> None:
        """Have all tasks ended."""
        if self._client is not None and self._client.stdin is not None:
            with suppress(OSError):
                self._client.stdin.close()

    def close(self) -> None:
        """End the client, and by it what is still under way."""
        self.cancel()
        if self._client is not None:
            try:
                self._client.wait(END_LIMIT)
            except subprocess.TimeoutExpired:
                self._client.kill()

    def _make_task(self, cell: Cell) -> RayTask:
        number = str(cell.number)
        output = os.path.join(self._orders.folder, TASKS, f"{number}.out")
        words = (*make_task_words(self._orders), number)
        gpus = cell.setting.get("accelerator") != "cpu"
        return RayTask(number, words, cpus=cell.ranks, gpus=gpus, output=output)

    def _read_words(self, client: subprocess.Popen[bytes]) -> None:
        assert client.stdout is not None
        for line in client.stdout:
            with suppress(ValueError, RecursionError):
                word = from_json(RayWord, json.loads(line))
                if word.ray in ("ready", "refused"):
                    self._refused.put(word.why)
                elif word.key:
                    ended = word.ray == "ended"
                    note = word.why if ended else f"on {word.node}"
                    self._states.put((int(word.key), TaskState(note, not ended, ended)))
        self._refused.put("Ray's client has ended")
        for number in self._cells:
            self._states.put((number, TaskState("Ray's client has ended", has_ended=True)))
