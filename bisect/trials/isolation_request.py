"""What somebody asked isolate for, on the command line, in a scenario file or when it began."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..bisection.applying import is_ours
from ..bisection.effort import CONFIRM
from ..errors import UsageError
from ..facts import Trial
from ..rank.masking import mask_command
from .apart import visible_devices
from .isolation_file import Named, of_file
from .isolation_plan import Plan, checked
from .isolation_record import FILE, Recorded, read
from .starts import Budget

STARTED_IN = "started_in"  # an option that nobody gives: the folder of the command
LIMIT = 3600.0  # seconds for a start of which nothing else is said
_OF_THE_MOMENT = ("command", "resume", "folder", "yes", "json", "plain")


@dataclass(frozen=True)
class Request:
    """The words of the command line, read. None: not said."""

    command: tuple[str, ...] = ()
    file: str | None = None
    resume: str | None = None
    folder: str | None = None
    yes: bool = False
    json: bool = False
    plain: bool = False
    watch: Mapping[str, str] = field(default_factory=dict)
    limit: float | None = None
    confirm: int | None = None
    confidence: float | None = None
    max_trials: int | None = None
    max_time: float | None = None
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    flaky: bool = False
    describe: bool = False


@dataclass(frozen=True)
class Job:
    """What is isolated, and how each start of it is watched."""

    plan: Plan
    folder: Path
    watch: Mapping[str, str]
    limit: float
    gpus: int
    recorded: tuple[Trial, ...]


def job(request: Request) -> Job:
    """Return what is to be done. Raises UsageError."""
    recorded = read(Path(request.resume)) if request.resume else None
    if recorded is not None:
        request = _resumed(request, recorded)
    named = of_file(request.file) if request.file else Named(request.command)
    request = replace(request, **_unsaid(request, named.wishes))
    environ = {**os.environ, **named.environment}
    folder = _folder(request)
    gpus = len(visible_devices(environ))
    plan = Plan(
        command=named.command,
        environ=environ,
        environment=named.environment,
        ours=named.ours or is_ours(named.command),
        table=named.table,
        only=request.only,
        without=request.without,
        confirm=CONFIRM if request.confirm is None else request.confirm,
        confidence=request.confidence or 0.95,
        budget=Budget(request.max_trials, request.max_time),
        flaky=request.flaky,
        describe=request.describe,
        has_gpu=gpus > 0,
        options=_options(request),
        again=_again(folder, request),
    )
    return Job(
        plan=checked(plan),
        folder=folder,
        watch={**named.watch, **request.watch},
        limit=request.limit or LIMIT,
        gpus=gpus,
        recorded=recorded.trials if recorded else (),
    )


def _folder(request: Request) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    new = os.path.join("runs", f"iso-{stamp}-{os.getpid():x}")
    folder = Path(request.resume or request.folder or new)
    if not request.resume and (folder / FILE).exists():
        raise UsageError(
            f"{folder} has an isolation in it already",
            f"Go on with it: --resume {folder}; or name another folder with --run-dir.",
        )
    return folder


def _options(request: Request) -> dict[str, object]:
    """Return what is written down for who resumes."""
    plain = asdict(request)
    asked = {name: value for name, value in plain.items() if name not in _OF_THE_MOMENT}
    return {**asked, STARTED_IN: os.getcwd()}


def _again(folder: Path, request: Request) -> str:
    words = ["hangbisect", "isolate", "--resume", str(folder)]
    if mask_command(request.command) != list(request.command):
        # A secret in it was not written down.
        words += ["--", *request.command]
    return shlex.join(words)


def _resumed(request: Request, recorded: Recorded) -> Request:
    """Return what was asked for when it began; what is said now has the last word."""
    if request.file:
        raise UsageError("--resume goes on with what was begun: it takes no file beside it")
    command = request.command or recorded.command
    if list(recorded.command) != mask_command(command):
        raise UsageError(
            f"{request.resume} is an isolation of another command: {shlex.join(recorded.command)}",
            "Leave the command out, or begin anew without --resume.",
        )
    if recorded.is_masked and not request.command:
        raise UsageError(
            "the command has a secret in it, which was not written down",
            f"hangbisect isolate --resume {request.resume} -- and the command as it was",
        )
    there = recorded.options.get(STARTED_IN, os.getcwd())
    if there != os.getcwd():
        raise UsageError(
            f"{request.resume} was begun in {there}, where what the command names is found",
            f"cd {shlex.quote(there)}, and the same again with the path of the folder",
        )
    known = {n: value for n, value in recorded.options.items() if n not in ("masked", STARTED_IN)}
    was = Request(**{**known, "only": tuple(known["only"]), "without": tuple(known["without"])})
    if was.file is None:
        request = replace(request, command=tuple(command))
    return replace(request, file=was.file, **_unsaid(request, asdict(was)))


def _unsaid(request: Request, wishes: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of `wishes` of which the request itself says nothing."""
    own = {name: value for name, value in wishes.items() if name not in (*_OF_THE_MOMENT, "file")}
    return {name: value for name, value in own.items() if _is_unsaid(getattr(request, name))}


def _is_unsaid(value: object) -> bool:
    return value is None or value is False or value in ((), {})
