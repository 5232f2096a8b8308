"""Runs the cells of a matrix, one after the other or side by side; a cell that fails does not stop
the others.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from ..base.errors import HangbisectError
from ..base.masking import mask_text
from ..search.cells import (
    JUDGED,
    Cell,
    CellOutcome,
    CellRun,
    CellState,
    judge_cell,
    why_unjudged,
)
from ..search.hang_place import describe_ending
from .launch import Launch, LaunchEnd, RunningLaunch
from .matrix_launch import MatrixContext, cell_mark, cell_run_dir, make_launch
from .resources import FreeResources, MachineShare, ScratchSpace, free_now, wait_until_free

_LOOK_EVERY = 0.2  # seconds between two looks whether a cell has ended, or somebody interrupted


class Matrix:
    """Cells that are run, each once."""

    def __init__(
        self,
        cells: Sequence[Cell],
        around: MatrixContext,
        shares: Sequence[MachineShare],
        *,
        recorded: Mapping[str, CellRun],
        keep: Callable[[Sequence[CellRun]], None],
        stopping: threading.Event,
    ) -> None:
        """`recorded`: what an interrupted matrix left, by mark; these cells are not run again.
        `keep` is called with all that have been run after each one. Once `stopping` is set, cells
        under way are ended and no other begins.
        """
        self.stopping = stopping
        self.note = ""  # what somebody should know who looks on
        self._around = around
        self._keep = keep
        self._scratch = ScratchSpace()
        self._lock = threading.Lock()
        self._cells = tuple(cells)
        self._ran: dict[int, CellRun] = {}
        for cell in cells:
            known = recorded.get(cell_mark(cell, around))
            if known is not None:
                self._ran[cell.number] = replace(known, number=cell.number)
        self._waiting = [cell for cell in cells if cell.number not in self._ran]
        self._under_way: dict[int, tuple[float, RunningLaunch | None]] = {}
        self._failure: Exception | None = None
        self._workers = [
            threading.Thread(target=self._work, args=(share,), daemon=True) for share in shares
        ]

    def start(self) -> None:
        """Start the first cells."""
        for worker in self._workers:
            worker.start()

    def wait(self, limit: float) -> bool:
        """Return whether all is over, after `limit` seconds at most. Raises what went wrong with
        us.
        """
        end = time.monotonic() + limit
        for worker in self._workers:
            worker.join(max(end - time.monotonic(), 0.0))
        if any(worker.is_alive() for worker in self._workers):
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def close(self) -> None:
        """Remove what cells had for themselves, those too that nobody waits for any more."""
        self._scratch.remove()

    def now(self) -> list[CellState]:
        """Return every cell as it is now."""
        with self._lock:
            ran, under_way = dict(self._ran), dict(self._under_way)
        return [self._now(cell, ran.get(cell.number), under_way) for cell in self._cells]

    def ran(self) -> list[CellRun]:
        """Return the cells that have been run."""
        with self._lock:
            return [self._ran[number] for number in sorted(self._ran)]

    # ---- one worker ------------------------------------------------------------------------------

    def _work(self, share: MachineShare) -> None:
        try:
            # What cells at the same time have in use is their own affair.
            before = free_now() if share.alone else None
            ran: CellRun | None = None
            while (cell := self._next()) is not None:
                if before is not None and ran is not None and ran.command:
                    self._wait_until_free(before, ran)
                ran = self._run(cell, share)
                with self._lock:
                    self._under_way.pop(cell.number, None)
                    self._ran[cell.number] = ran
                    self._keep([self._ran[number] for number in sorted(self._ran)])
        except Exception as error:  # told by the thread that waits for us
            self._failure = error
            self.stopping.set()

    def _next(self) -> Cell | None:
        with self._lock:
            if self.stopping.is_set() or not self._waiting:
                return None
            cell = self._waiting.pop(0)
            self._under_way[cell.number] = (time.monotonic(), None)
            return cell

    def _wait_until_free(self, before: FreeResources, ran: CellRun) -> None:
        environ = {**os.environ, **ran.environment}
        taken = wait_until_free(before, ran.command, environ, self.stopping)
        self.note = f"went on although {taken}" if taken else ""

    def _run(self, cell: Cell, share: MachineShare) -> CellRun:
        """Run a cell in its share of the machine."""
        folder = cell_run_dir(cell, self._around)
        scratch = None if share.alone else self._scratch.folder()
        try:
            port = None if share.alone else self._scratch.port()
            apart = share.environment(folder, scratch, port) if scratch and port else {}
            start = make_launch(cell, self._around, apart, port)
            _set_aside(folder)
            return self._launched(cell, start)
        except (HangbisectError, OSError) as error:
            return self._told(cell, "not started", str(error))
        finally:
            if scratch is not None:
                self._scratch.remove(scratch)

    def _launched(self, cell: Cell, start: Launch) -> CellRun:
        launched = RunningLaunch(start)
        with self._lock:
            self._under_way[cell.number] = (launched.began, launched)
        stopped = False
        try:
            while launched.wait(_LOOK_EVERY) is None and not stopped:
                stopped = self.stopping.is_set()
        finally:
            ended = launched.stop()  # how it ended, if it has
        return self._ended(cell, start, ended, stopped)

    def _ended(self, cell: Cell, start: Launch, ended: LaunchEnd, stopped: bool) -> CellRun:
        came = judge_cell(ended.verdict, ended.status, stopped)
        if came not in JUDGED:
            why = why_unjudged(came, ended.status, ended.trouble)
            return self._told(cell, came, why, start, ended.seconds)
        where = describe_ending(ended.verdict, ended.trouble, with_outcome=False)
        cause = ended.verdict.cause if ended.verdict else None
        ran = self._told(cell, came, where, start, ended.seconds)
        return replace(ran, cause=cause.id if cause else None)

    def _told(
        self,
        cell: Cell,
        came: CellOutcome,
        where: str,
        start: Launch | None = None,
        seconds: float = 0.0,
    ) -> CellRun:
        return CellRun(
            number=cell.number,
            name=cell.name,
            setting=dict(cell.setting),
            result=came,
            where="" if came == "ok" else mask_text(where),
            seconds=round(seconds, 3),
            command=start.command if start else (),
            environment=dict(start.environment) if start else {},
            run_dir=str(start.run_dir) if start else "",
            mark=cell_mark(cell, self._around),
        )

    def _now(
        self,
        cell: Cell,
        ran: CellRun | None,
        under_way: Mapping[int, tuple[float, RunningLaunch | None]],
    ) -> CellState:
        if ran is not None or cell.number not in under_way:
            return CellState(cell, ran)
        began, launched = under_way[cell.number]
        ranks = tuple(launched.ranks()) if launched is not None else ()
        return CellState(cell, None, ranks, time.monotonic() - began)


def _set_aside(folder: Path) -> None:
    """Take what an earlier start of a cell left out of the way: its verdict is not this one's."""
    if folder.exists():
        names = (f"{folder.name}.before-{number}" for number in count(1))
        folder.rename(next(p for name in names if not (p := folder.with_name(name)).exists()))
