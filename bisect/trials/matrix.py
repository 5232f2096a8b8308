"""How a cell of a matrix is started on this machine, and the cells run, one after the other or side
by side; a cell that fails does not stop the others.

Launchers are executables that start a command on every rank (launchers/README.md). They know
nothing of us; what is special about starting our own pipelines by one stands here.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field, replace
from itertools import count
from pathlib import Path

from ..base.command_words import FIRST_PIPELINE, PIPELINE, PORTS
from ..base.errors import HangbisectError, UsageError, nearest
from ..base.lazy_dataclass import dataclass
from ..base.masking import mask_text
from ..search.cells import (
    ALONE,
    JUDGED,
    Cell,
    CellOutcome,
    CellRun,
    CellState,
    judge_cell,
    why_unjudged,
)
from ..search.trial_results import describe_ending
from ..toggles.command_toggles import apply_setting
from ..toggles.toggle import Toggle
from .launch import Launch, LaunchEnd, RunningLaunch
from .resources import DEVICES, FreeResources, MachineShare, ScratchSpace, free_now, wait_until_free

_PACKAGE = Path(__file__).resolve().parents[1]
_PYTHON = re.compile(r"python[0-9.]*")
_LONGEST = 40  # characters of a cell's name in its folder's


@dataclass(frozen=True)
class MatrixContext:
    """What all cells of a matrix have in common."""

    table: tuple[Toggle, ...]  # all toggles that there are
    watch: Mapping[str, str]  # options of the watch
    folder: Path  # of the matrix; each cell has one in it
    started_in: Path  # where cells are started
    environment: Mapping[str, str] = field(default_factory=dict)  # that the file gives every cell


def make_launch(
    cell: Cell, around: MatrixContext, apart: Mapping[str, str], port: int | None = None
) -> Launch:
    """Return the launch of a cell; `apart`: what keeps it from others that run at the same time,
    where the file says nothing of it. Of the GPUs that it gives to every cell one has its share.

    Raises UsageError for a launcher that does not exist, or a toggle that cannot be applied.
    """
    environment = {**cell.environment, **_variables_apart(cell, around, apart)}
    named = any(name in cell.environment for name in PORTS)
    command, variables = _cell_command(cell, {**os.environ, **environment}, None if named else port)
    environment.update(variables)
    ours = cell.pipeline is not None
    change = apply_setting(command, cell.setting, around.table, {**os.environ, **environment}, ours)
    return Launch(
        command=change.command,
        run_dir=cell_run_dir(cell, around),
        environment={**environment, **change.environment},
        watch={"on-hang": "end", **around.watch},
        limit=cell.limit,
        folder=around.started_in,
    )


def _variables_apart(cell: Cell, around: MatrixContext, apart: Mapping[str, str]) -> dict[str, str]:
    """Return those of the variables `apart` that the file leaves open or that share out its own."""
    named = set(cell.environment)
    if cell.environment.get(DEVICES) == around.environment.get(DEVICES):
        named.discard(DEVICES)
    if named.intersection(PORTS):
        named.update(PORTS)
    return {name: value for name, value in apart.items() if name not in named}


def cell_run_dir(cell: Cell, around: MatrixContext) -> Path:
    """Return the folder of a cell: its number and its name."""
    word = re.sub(r"[^A-Za-z0-9.=_]+", "-", cell.name).strip("-.")[:_LONGEST]
    return around.folder / (f"{cell.number:02}-{word}" if word else f"{cell.number:02}")


def cell_mark(cell: Cell, around: MatrixContext) -> str:
    """Return what tells a cell from all others, today and after an interruption."""
    own = [asdict(toggle) for toggle in around.table if toggle.own]
    facts = {**asdict(cell), "watch": dict(around.watch), "table": own}
    del facts["number"]
    text = json.dumps(facts, sort_keys=True, default=dict)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _cell_command(
    cell: Cell, environ: Mapping[str, str], port: int | None
) -> tuple[tuple[str, ...], dict[str, str]]:
    words = cell.words
    if cell.pipeline is not None:
        named = () if cell.pipeline == FIRST_PIPELINE else (PIPELINE, cell.pipeline)
        words = (*_own_module(), *named, *words)
    if cell.launcher is None:
        return words, {}
    if cell.pipeline is None and _PYTHON.fullmatch(Path(words[0]).name):
        words = words[1:]  # a launcher is told what one would give to python
    return launcher_command(
        find_launcher(cell.launcher),
        cell.nodes,
        cell.ranks,
        words,
        ours=cell.pipeline is not None,
        master_port=port,
        environ=environ,
    )


def _own_module() -> tuple[str, ...]:
    """Return what python runs for a pipeline: elsewhere a checkout is found by its path alone."""
    return ("-m", "bisect") if _PACKAGE.name == "hangbisect" else (str(_PACKAGE),)


def format_launch(launch: Launch, makes: Path | None = None) -> str:
    """Return a line for a shell that does what the launch does; `makes`: a folder that it needs."""
    shown = dict(launch.watch)
    if launch.limit is not None:
        shown["limit"] = f"{launch.limit:g}"
    shown["run-dir"] = str(launch.run_dir.resolve())
    options: list[str] = []
    for name, value in shown.items():
        for one in value.split(",") if name == "timeout" else [value]:
            options += [f"--{name}", one]
    words = [*own_program(), "run", *options, "--", *launch.command]
    variables = [_format_assignment(name, value) for name, value in launch.environment.items()]
    steps = [f"cd {shlex.quote(str(launch.folder or Path.cwd()))}"]
    steps += [f"mkdir -p {shlex.quote(str(makes))}"] if makes else []
    return " && ".join([*steps, " ".join([*variables, shlex.join(words)])])


def _format_assignment(name: str, value: str) -> str:
    rest = os.environ.get("PATH", "")
    if name == "PATH" and rest and value.endswith(f":{rest}"):
        return f'PATH={shlex.quote(value.removesuffix(rest))}"$PATH"'
    return f"{name}={shlex.quote(value)}"


def own_program() -> tuple[str, ...]:
    """Return the words that start us in a shell."""
    script = Path(sys.executable).parent / "hangbisect"
    if _PACKAGE.name == "hangbisect" and script.is_file():
        return (str(script),)
    return (sys.executable, str(_PACKAGE))


def launcher_folder() -> Path:
    """Return the folder of those that ship: installed beside our modules, in a checkout its own."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "launchers"
    return installed if installed.is_dir() else package.parent / "launchers"


def launcher_names() -> list[str]:
    """Return the names of those that ship."""
    return sorted(f.name for f in launcher_folder().iterdir() if f.is_file() and not f.suffix)


def find_launcher(name: str) -> Path:
    """Return the launcher of that name, or at that path if there is a "/" in it.

    Raises UsageError where there is none.
    """
    if "/" in name:
        return _launcher_at(Path(name).expanduser().absolute())
    if name in launcher_names():
        return launcher_folder() / name
    known = launcher_names()
    raise UsageError(
        f"there is no launcher {name!r}; there are {', '.join(known)}{nearest(name, known)}",
        "One of your own is named by a path with a / in it: ./my-launcher",
    )


def launcher_command(
    launcher: Path,
    nodes: int,
    ranks: int,
    words: Sequence[str],
    *,
    ours: bool = False,
    master_port: int | None = None,
    environ: Mapping[str, str] = os.environ,
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the command that starts `words`, what one would give to python, on `ranks` ranks of
    each of `nodes` nodes, and the variables to set for it.

    `ours`: it walks a pipeline of ours, so it has to run under our own interpreter, which comes
    first in PATH; and where Lightning starts the other ranks, it has to be told how many.
    """
    variables = {"NNODES": str(nodes), "NPROC_PER_NODE": str(ranks)}
    if master_port is not None:
        variables["MASTER_PORT"] = str(master_port)
    if ours:
        path = environ.get("PATH", os.defpath)
        variables["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), path])
        if launcher.name == ALONE and ranks > 1:
            words = [*words, "--devices", str(ranks)]
    return (*_launcher_words(launcher), *words), variables


def _launcher_at(path: Path) -> Path:
    if not path.is_file():
        raise UsageError(
            f"there is no launcher at {path}",
            f"Those that ship are named without a path: {', '.join(launcher_names())}",
        )
    if not os.access(path, os.X_OK) and not _script_interpreter(path):
        raise UsageError(f"the launcher {path} cannot be started", f"chmod +x {path}")
    return path


def _launcher_words(launcher: Path) -> tuple[str, ...]:
    """Return the words that start a launcher, whose executable bit an installer may have lost."""
    if os.access(launcher, os.X_OK):
        return (str(launcher),)
    return (*_script_interpreter(launcher), str(launcher))


def _script_interpreter(path: Path) -> list[str]:
    """Return the words of a script's first line, #!, as execve(2) reads them."""
    with path.open("rb") as file:
        first = file.readline(256)
    return os.fsdecode(first)[2:].strip().split(maxsplit=1) if first.startswith(b"#!") else []


def record_cell_run(
    cell: Cell,
    around: MatrixContext,
    came: CellOutcome,
    where: str,
    start: Launch | None = None,
    seconds: float = 0.0,
) -> CellRun:
    """Return a cell that was run, or that could not be: then there is no `start`."""
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
        mark=cell_mark(cell, around),
    )


def take_recorded(
    cells: Sequence[Cell], around: MatrixContext, recorded: Mapping[str, CellRun]
) -> dict[int, CellRun]:
    """Return by number what came of those cells that are recorded, by mark."""
    known = ((cell.number, recorded.get(cell_mark(cell, around))) for cell in cells)
    return {number: replace(ran, number=number) for number, ran in known if ran is not None}


_LOOK_EVERY = 0.2  # seconds between two looks whether a cell has ended, or was interrupted


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
        self.note = ""  # what a person at the terminal should know
        self._around = around
        self._keep = keep
        self._scratch = ScratchSpace()
        self._lock = threading.Lock()
        self._cells = tuple(cells)
        self._ran = take_recorded(cells, around, recorded)
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
        """Return whether all is over, after `limit` seconds at most. Raises our own errors."""
        end = time.monotonic() + limit
        for worker in self._workers:
            worker.join(max(end - time.monotonic(), 0.0))
        if any(worker.is_alive() for worker in self._workers):
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def close(self) -> None:
        """Remove what cells had for themselves, also of cells that are not waited for any more."""
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
            if cell.nodes > 1:  # the temporary folder is on this one alone
                apart = {name: v for name, v in apart.items() if not v.startswith(str(scratch))}
            start = make_launch(cell, self._around, apart, port)
            _set_aside(folder)
            return self._launched(cell, start)
        except (HangbisectError, OSError) as error:
            return record_cell_run(cell, self._around, "not started", str(error))
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
            return record_cell_run(cell, self._around, came, why, start, ended.seconds)
        where = describe_ending(ended.verdict, ended.trouble, with_outcome=False)
        cause = ended.verdict.cause if ended.verdict else None
        ran = record_cell_run(cell, self._around, came, where, start, ended.seconds)
        return replace(ran, cause=cause.id if cause else None)

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
