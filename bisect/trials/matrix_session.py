"""A matrix from its file to its answer: what `hangbisect matrix` does."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import gettempdir
from typing import Protocol

from ..bisection.cells import Cell, cells
from ..bisection.ran import EXIT_STATUS, TO_THEIR_END, Ran, seconds_left
from ..errors import UsageError
from ..monitor.reports import REPORT, make_now
from ..report.live_table import Lines, LiveTable
from ..report.matrix import Told, as_json, summary, table
from ..report.width import terminal_width
from ..stamp import stamp
from ..version import VERSION
from .apart import Share
from .matrix import CellNow, Matrix
from .matrix_launch import Around, launch, mark, pasted, run_dir
from .matrix_record import FILE, JUNIT, MatrixRecord, recorded
from .scenario_file import load, names, needed, where
from .side_by_side import shares_of
from .stopping import stopping_by_signals

_DRAWN_EVERY = 0.25  # seconds


@dataclass(frozen=True)
class Asked:
    """The words of the command line, read. None: not said."""

    file: str | None
    jobs: int = 1
    resume: str | None = None
    run_dir: str | None = None
    dry_run: bool = False
    plain: bool = False
    json: bool = False


class View(Protocol):
    """What shows a matrix while it runs."""

    def show(self, cells: Sequence[CellNow], left: float | None, note: str) -> None:
        """Show how things are."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def session(asked: Asked) -> int:
    """Do what was asked, and return the exit status. Raises UsageError, Missing."""
    needed("rich", "junitparser", "pydantic", "yaml")
    from ..bisection.scenario_toggles import toggles  # its models are made of pydantic

    file, done, folder = _where(asked)
    scenario = load(file)
    listed = cells(scenario)
    around = Around(
        table=toggles(scenario),
        watch=scenario.watch.options(),
        folder=folder.absolute(),
        started_in=Path.cwd(),
        environment=scenario.environment,
    )
    each = shares_of(scenario, listed, asked.jobs, os.environ, lambda path: where(file, path))
    if asked.dry_run:
        left = [cell for cell in listed if mark(cell, around) not in done]
        return _print_commands(left, around, each)
    record = MatrixRecord(folder)
    told = Told(
        scenario=file if file in names() else os.path.abspath(file),
        title=scenario.title,
        started_in=str(around.started_in),
        folder=str(folder),
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        seconds=0.0,
        jobs=asked.jobs,
        cells=listed,
        ran=(),
    )
    told = _run(told, around, each, done, record, _view(asked.plain))
    record.write(told)
    record.write_junit(told)
    return _tell(told, asked, record)


# ---- what is to be run ---------------------------------------------------------------------------


def _where(asked: Asked) -> tuple[str, Mapping[str, Ran], Path]:
    """Return the scenario's file, what is done already, and the folder of the matrix."""
    if asked.resume:
        return _resumed(asked, Path(asked.resume))
    if not asked.file:
        raise UsageError("matrix needs a scenario", "hangbisect matrix recommended")
    name = Path(asked.file).stem
    folder = Path(asked.run_dir or os.path.join("runs", f"{stamp()}-matrix-{name}"))
    if (folder / FILE).exists() and not asked.dry_run:
        raise UsageError(f"{folder} holds a matrix already", f"Go on with it: {_again(folder)}")
    return asked.file, {}, folder


def _resumed(asked: Asked, folder: Path) -> tuple[str, Mapping[str, Ran], Path]:
    if asked.run_dir:
        raise UsageError("--resume goes on in the folder that it names: leave --run-dir out")
    known = recorded(folder)
    here, there = Path.cwd(), Path(known.started_in)
    if here != there:  # relative paths in commands would mean something else
        raise UsageError(
            f"{folder} is a matrix of commands that are started in {there}, not in {here}",
            f"cd {shlex.quote(str(there))} && {_again(folder.absolute())}",
        )
    return asked.file or known.scenario, known.done, folder


def _again(folder: Path) -> str:
    return f"hangbisect matrix --resume {shlex.quote(str(folder))}"


def _print_commands(listed: Sequence[Cell], around: Around, each: Sequence[Share]) -> int:
    """Print the command of every cell, as the next one of so many at a time would be started.

    Return the exit status: 5 if one cannot be started.
    """
    status = 0
    for index, cell in enumerate(listed):
        share = each[index % len(each)]
        print(f"# {cell.number} {cell.name}")
        scratch = None if share.alone else Path(gettempdir(), f"hb-{os.getpid():x}-{cell.number}")
        port = None if share.alone else 20000 + index
        apart = share.environment(run_dir(cell, around), scratch, port) if scratch and port else {}
        try:
            print(pasted(launch(cell, around, apart, port), scratch))
        except UsageError as error:
            print(f"# cannot be started: {error}")
            status = EXIT_STATUS["not started"]
    return status


# ---- running it ----------------------------------------------------------------------------------


def _run(
    told: Told,
    around: Around,
    each: Sequence[Share],
    done: Mapping[str, Ran],
    record: MatrixRecord,
    view: View,
) -> Told:
    """Run the cells and return what came of them."""
    began = time.monotonic()

    def so_far(ran: Sequence[Ran], interrupted: bool = False) -> Told:
        seconds = time.monotonic() - began
        return replace(told, ran=tuple(ran), seconds=seconds, interrupted=interrupted)

    with stopping_by_signals() as stopping:
        matrix = Matrix(
            told.cells,
            around,
            each,
            recorded=done,
            keep=lambda ran: record.write(so_far(ran, stopping.is_set())),
            stopping=stopping,
        )
        record.write(so_far(matrix.ran(), interrupted=True))
        matrix.start()
        try:
            while not matrix.wait(_DRAWN_EVERY):
                now = matrix.now()
                note = "ends what is under way" if stopping.is_set() else ""
                view.show(now, _left(now, len(each)), note or record.trouble or matrix.note)
            view.show(matrix.now(), None, record.trouble)
        except KeyboardInterrupt:
            pass  # the second one: nobody waits for what is under way, which ends without us
        finally:
            view.close()
            matrix.close()
        ended = [one for one in matrix.ran() if one.result != "interrupted"]
        return so_far(matrix.ran(), stopping.is_set() and len(ended) < len(told.cells))


def _left(now: Sequence[CellNow], jobs: int) -> float | None:
    ended = [one.ran.seconds for one in now if one.ran and one.ran.result in TO_THEIR_END]
    under_way = [one.seconds for one in now if one.seconds is not None]
    waiting = sum(one.ran is None and one.seconds is None for one in now)
    return seconds_left(ended, under_way, waiting, jobs)


def _view(plain: bool) -> View:
    dumb = os.environ.get("TERM", "dumb") == "dumb" or "NO_COLOR" in os.environ
    if plain or dumb or not sys.stderr.isatty():
        return Lines(sys.stderr)
    return LiveTable(sys.stderr)


# ---- the answer ----------------------------------------------------------------------------------


def _tell(told: Told, asked: Asked, record: MatrixRecord) -> int:
    if asked.json:
        print(json.dumps(as_json(told, VERSION), indent=1))
    else:
        terminal = sys.stdout.isatty() and not asked.plain
        colours = terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        width = terminal_width() if terminal else None
        print("\n".join([*table(told, width=width, colours=colours), "", summary(told)]))
        print(f"report  {_files(told)}, {JUNIT} beside it")
    if record.trouble:
        print(f"hangbisect: {record.trouble}", file=sys.stderr)
    if told.interrupted:
        print(f"interrupted; to go on: {_again(Path(told.folder))}", file=sys.stderr)
    if _is_to_be_reported(told):
        sys.stdout.flush()
        make_now(told.folder, trials=True)
    return told.status


def _files(told: Told) -> str:
    matrix = os.path.join(told.folder, FILE)
    if not _is_to_be_reported(told):
        return matrix
    return f"{os.path.join(told.folder, REPORT)}: paste it into an issue; {FILE}"


def _is_to_be_reported(told: Told) -> bool:
    return told.status != 0 and not told.interrupted
