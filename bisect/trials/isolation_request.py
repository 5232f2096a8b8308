"""What somebody asked isolate for, on the command line, in a scenario file or when it began."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..bisection.applying import is_ours
from ..bisection.cells import DEFAULT_LIMIT
from ..bisection.effort import CONFIRM
from ..bisection.step_names import check_timeouts
from ..errors import UsageError
from ..facts import Trial
from ..rank.masking import mask_command
from ..stamp import stamp
from .apart import visible_devices
from .from_json import made
from .isolation_file import Named, of_file
from .isolation_plan import Plan, checked
from .isolation_record import FILE, Recorded, read
from .starts import Budget

# Options that nobody gives: the folder of the command, what a scenario file said when it began, and
# whether a secret of the command was left out.
STARTED_IN, MARK, MASKED = "started_in", "mark", "masked"
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
    crash: bool = False


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
    if recorded is not None and recorded.options.get(MARK, "") != named.mark:
        raise UsageError(
            f"{request.file} has been changed since {request.resume} was begun: another command, "
            "environment, or toggles of its own",
            "Begin anew, without --resume.",
        )
    ours = named.ours or is_ours(named.command)
    if ours:
        each = request.watch.get("timeout", "").split(",")
        check_timeouts((one.rpartition("=")[0] for one in each), named.command)
    folder = _folder(request)
    gpus = len(visible_devices(environ))
    plan = Plan(
        command=named.command,
        environ=environ,
        environment=named.environment,
        folder=os.getcwd() if request.file else "",
        ours=ours,
        table=named.table,
        only=request.only,
        without=request.without,
        confirm=CONFIRM if request.confirm is None else request.confirm,
        confidence=request.confidence or 0.95,
        budget=Budget(request.max_trials, request.max_time),
        flaky=request.flaky,
        describe=request.describe,
        crash=request.crash,
        has_gpu=gpus > 0,
        options={**_options(request), STARTED_IN: os.getcwd(), MARK: named.mark},
        again=_again(folder, request),
    )
    return Job(
        plan=checked(plan),
        folder=folder,
        watch={**named.watch, **request.watch},
        limit=request.limit or DEFAULT_LIMIT,
        gpus=gpus,
        recorded=recorded.trials if recorded else (),
    )


def _folder(request: Request) -> Path:
    new = os.path.join("runs", f"iso-{stamp()}-{os.getpid():x}")
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
    return {name: value for name, value in plain.items() if name not in _OF_THE_MOMENT}


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
    was = _was(recorded, request)
    command = request.command or recorded.command
    if list(recorded.command) != mask_command(command):
        raise UsageError(
            f"{request.resume} is an isolation of another command: {shlex.join(recorded.command)}",
            "Leave the command out, or begin anew without --resume.",
        )
    if recorded.is_masked and not request.command and was.file is None:
        raise UsageError(
            "the command has a secret in it, which was not written down",
            f"hangbisect isolate --resume {request.resume} -- and the command as it was",
        )
    there = str(recorded.options.get(STARTED_IN, os.getcwd()))
    if there != os.getcwd():
        raise UsageError(
            f"{request.resume} was begun in {there}, where what the command names is found",
            f"cd {shlex.quote(there)}, and the same again with the path of the folder",
        )
    if was.file is None:
        request = replace(request, command=tuple(command))
    return replace(request, file=was.file, **_unsaid(request, asdict(was)))


def _was(recorded: Recorded, request: Request) -> Request:
    """Return what was asked for when it began. Raises UsageError for what nobody can ask for."""
    own = (STARTED_IN, MARK, MASKED)
    try:
        was = made(Request, {n: value for n, value in recorded.options.items() if n not in own})
        for name in ("limit", "confidence", "max_trials", "max_time"):
            if (value := getattr(was, name)) is not None and not value > 0:
                raise ValueError(f"{name!r} cannot be {value!r}")
        if (was.confidence or 0) >= 1 or (was.confirm or 0) < 0:
            raise ValueError(f"'confidence' is {was.confidence}, 'confirm' {was.confirm}")
    except ValueError as error:
        raise UsageError(
            f"{request.resume}/{FILE} has options that isolate does not write: {error}",
            "Begin anew, without --resume.",
        ) from None
    return was


def _unsaid(request: Request, wishes: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of `wishes` of which the request itself says nothing."""
    own = {name: value for name, value in wishes.items() if name not in (*_OF_THE_MOMENT, "file")}
    return {name: value for name, value in own.items() if _is_unsaid(getattr(request, name))}


def _is_unsaid(value: object) -> bool:
    return value is None or value is False or value in ((), {})
