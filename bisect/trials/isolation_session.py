"""One isolation from the question to the person up to the answer on the terminal."""

from __future__ import annotations

import json
import os
import select
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..bisection.isolation import Isolation
from ..bisection.reached import Reached, reached
from ..errors import UsageError
from ..facts import Trial
from ..monitor.reports import make_now
from ..report.isolation import answer_lines
from ..report.width import terminal_width
from ..report.words import wrapped
from .expecting import lines
from .isolating import Isolating
from .isolation_plan import usable_toggles
from .isolation_record import IsolationRecord, as_json
from .isolation_request import Job, Request, job
from .run_files import read_verdict, told_of_toggles
from .startable import check_program
from .starting import Starter
from .stopping import stopping_by_signals

ISOLATED, NO_HANG, HANGS, FAILS, INTERRUPTED = 0, 1, 3, 5, 130
ANSWER_LIMIT = 600.0  # seconds for a person to answer


def isolate(request: Request) -> int:
    """Do what is asked, print the answer, and return the exit status.

    Raises UsageError, and CannotStart for a program that there is not.
    """
    work = job(request)
    check_program(work.plan.command[0], work.plan.environ)
    remedies = usable_toggles(work.plan).remedies
    told = lines(
        work.plan.command,
        work.plan.environ,
        remedies,
        work.plan.confirm,
        folder=str(work.folder),
        limit=work.limit,
        gpus=work.gpus,
        flaky=work.plan.confidence if work.plan.flaky else None,
    )
    asks = not (work.plan.ours or request.yes)
    if not asks:
        _tell(told[0].replace("your command", "it") if work.plan.ours else "\n".join(told))
    elif not _agreed(told):
        _tell("nothing was started")
        return INTERRUPTED
    record = IsolationRecord(work.folder)
    with stopping_by_signals() as stopping:
        found = _isolated(work, record, stopping, asks)
    return _answer(found, record, work, request)


def _isolated(
    work: Job, record: IsolationRecord, stopping: threading.Event, asks: bool
) -> Isolation:
    starter = Starter(work.plan, work.folder, work.watch, work.limit, stopping, _tell)
    return Isolating(
        work.plan,
        starter.start,
        tell=_tell,
        keep=_keeping(record),
        verdict_of=_verdict_of,
        reached_by=_reached_by,
        may_go_on=(lambda told: _agreed(told, stopping)) if asks else _telling,
        recorded=work.recorded,
        stopping=stopping,
    ).run()


def _keeping(record: IsolationRecord) -> Callable[[Isolation], None]:
    """Return what writes down all that is known; where it cannot, it says so, once, and goes on."""
    failed: list[str] = []

    def keep(isolation: Isolation) -> None:
        try:
            record.write(isolation)
        except OSError as error:
            if not failed:
                _tell(f"{record.folder} cannot be written, going on: {error.strerror}")
            failed.append(str(error))

    return keep


def _verdict_of(trial: Trial) -> Mapping[str, Any]:
    return read_verdict(Path(trial.run_dir)) or {}


def _reached_by(trial: Trial) -> Reached:
    return reached(*told_of_toggles(Path(trial.run_dir)))


def _answer(found: Isolation, record: IsolationRecord, work: Job, request: Request) -> int:
    _keeping(record)(found)
    try:
        record.report(found)
    except OSError as error:
        _tell(f"no report: {error.strerror}")
    if request.json:
        print(json.dumps(as_json(found), indent=2, ensure_ascii=False))
    else:
        width = None if request.plain else shutil.get_terminal_size().columns
        print("\n".join(answer_lines(found, folder=str(work.folder), width=width)), flush=True)
    if found.outcome not in ("no_hang", "interrupted"):
        make_now(str(work.folder), trials=True)
    return _status(found)


def _status(found: Isolation) -> int:
    if found.outcome in ("isolated", "no_hang", "interrupted"):
        return {"isolated": ISOLATED, "no_hang": NO_HANG, "interrupted": INTERRUPTED}[found.outcome]
    return HANGS if found.seen is not None else FAILS


# ---- talking to a person -------------------------------------------------------------------------


def _tell(text: str) -> None:
    width = terminal_width(2)
    lines = [part for line in text.split("\n") for part in wrapped(line, width, 2) or [""]]
    print("\n".join(lines), file=sys.stderr, flush=True)


def _telling(told: Sequence[str]) -> bool:
    _tell("\n".join(told))
    return True


def _agreed(told: Sequence[str], stopping: threading.Event | None = None) -> bool:
    """Return whether the person at the terminal agrees. Raises UsageError where there is none."""
    _tell("\n".join(told))
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("there is no terminal to ask at, and --yes is not given", "Add --yes.")
    print("Start? [y/N] ", end="", file=sys.stderr, flush=True)
    until = time.monotonic() + ANSWER_LIMIT
    while not select.select([sys.stdin], [], [], 0.2)[0]:
        if time.monotonic() > until or (stopping is not None and stopping.is_set()):
            _tell("\nno answer")
            return False
    return os.read(sys.stdin.fileno(), 100).strip().lower() in (b"y", b"yes")
