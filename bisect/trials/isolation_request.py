"""What a person asked isolate for, on the command line, in a scenario file (whose cells are not
looked at), or when an isolation that is resumed began; and isolation.json: all that an isolation
knows, written after every trial, and read to go on.

Anybody may have changed the file since it was written: each field is checked against its type.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..base.errors import UsageError
from ..base.files import stamp, write_whole
from ..base.json_codec import from_json, to_json
from ..base.lazy_dataclass import dataclass
from ..base.masking import mask, mask_command, mask_text
from ..base.pipeline import check_timeouts
from ..base.verdict_facts import Trial
from ..report.isolation_text import report_text
from ..search.cells import DEFAULT_LIMIT
from ..search.isolation import Isolation
from ..search.trial_results import CONFIRM
from ..toggles.command_toggles import walks_pipeline
from ..toggles.table import TOGGLES
from ..toggles.toggle import Toggle
from .isolation_plan import Budget, IsolationPlan, check_plan
from .resources import visible_devices

if TYPE_CHECKING:
    from .package_versions import VersionEnvironments

ISOLATION_FILE, REPORT_FILE = "isolation.json", "report.md"
_T = TypeVar("_T")
_ASSIGNED = re.compile(r"\b([A-Za-z_]\w*)=(\S+)")


class IsolationRecord:
    """The files of one isolation."""

    def __init__(self, folder: Path) -> None:
        """Make the folder. Raises UsageError if it cannot be made."""
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{folder} cannot be made: {error.strerror}", "Name another with --run-dir."
            ) from None

    def write(self, isolation: Isolation) -> None:
        """Write what is known. Raises OSError."""
        text = json.dumps(isolation_json(isolation), indent=2, ensure_ascii=False) + "\n"
        write_whole(self.folder / ISOLATION_FILE, text.encode(errors="replace"))

    def report(self, isolation: Isolation) -> None:
        """Write the answer for people. Raises OSError."""
        text = report_text(_mask_isolation(isolation), folder=str(self.folder))
        write_whole(self.folder / REPORT_FILE, text.encode(errors="replace"))


def isolation_json(isolation: Isolation) -> Any:
    """Return the object that isolation.json holds, secrets masked."""
    hidden = _mask_isolation(isolation)
    options = {**hidden.options, "masked": hidden.command != isolation.command}
    trials = tuple(
        replace(
            trial,
            command=tuple(mask_command(trial.command)),
            environment={name: mask(name, value) for name, value in trial.environment.items()},
        )
        for trial in hidden.trials
    )
    return to_json(replace(hidden, options=options, trials=trials))


def _mask_isolation(isolation: Isolation) -> Isolation:
    """Return it without the secrets of its command, in the lines to paste and printed too."""
    command = tuple(mask_command(isolation.command))
    pairs = [pair for pair in zip(isolation.command, command, strict=True) if pair[0] != pair[1]]

    def masked(line: str) -> str:
        for secret, shown in pairs:
            line = line.replace(shlex.quote(secret), shown).replace(secret, shown)
        line = _ASSIGNED.sub(lambda found: f"{found[1]}={mask(found[1], found[2])}", line)
        return mask_text(line)

    return replace(
        isolation,
        command=command,
        trials=tuple(replace(trial, why=masked(trial.why)) for trial in isolation.trials),
        paste=masked(isolation.paste),
        why=masked(isolation.why),
        next=masked(isolation.next),
    )


def read_isolation(folder: Path) -> Isolation:
    """Return what was recorded in a folder, secrets masked. Raises UsageError if there is nothing
    to go on with.
    """
    return read_recorded(Isolation, folder / ISOLATION_FILE, "an isolation")


def read_recorded(kind: type[_T], file: Path, what: str) -> _T:
    """Return what a search wrote of itself in `file`, to go on with it; `what` it is in words.

    Raises UsageError where the file cannot be read, or is none of that kind.
    """
    try:
        return from_json(kind, json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}",
            f"--resume takes the folder of {what} that was begun.",
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{file} is not what {what} writes ({error})",
            "Begin anew, without --resume.",
        ) from None


# Options that no person gives: the folder of the command, what a scenario file said when it began,
# and whether a secret of the command was left out.
STARTED_IN, MARK, MASKED = "started_in", "mark", "masked"
_OF_THE_MOMENT = ("command", "resume", "folder", "yes", "json", "plain")


@dataclass(frozen=True)
class IsolationRequest:
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
    keep_watching: bool = False
    versions: tuple[str, ...] = ()  # "vllm=0.19.1,0.20.0"


@dataclass(frozen=True)
class IsolationJob:
    """What is isolated, and how each start of it is watched."""

    plan: IsolationPlan
    folder: Path
    watch: Mapping[str, str]
    limit: float
    gpus: int
    recorded: tuple[Trial, ...]


def make_job(request: IsolationRequest) -> IsolationJob:
    """Return what is to be done. Raises UsageError."""
    recorded = read_isolation(Path(request.resume)) if request.resume else None
    if recorded is not None:
        request = _resume_request(request, recorded)
    named = read_scenario_job(request.file) if request.file else ScenarioJob(request.command)
    request = replace(request, **_unsaid_wishes(request, named.wishes))
    environ = {**os.environ, **named.environment}
    if recorded is not None and recorded.options.get(MARK, "") != named.mark:
        raise UsageError(
            f"{request.file} has been changed since {request.resume} was begun: another command, "
            "environment, or toggles of its own",
            "Begin anew, without --resume.",
        )
    ours = named.ours or walks_pipeline(named.command)
    if ours:
        each = request.watch.get("timeout", "").split(",")
        check_timeouts((one.rpartition("=")[0] for one in each), named.command)
    folder = _choose_folder(request)
    gpus = len(visible_devices(environ))
    environments, of_versions = _make_version_toggles(request, named.command, environ, folder)
    plan = IsolationPlan(
        command=named.command,
        environ=environ,
        environment=named.environment,
        folder=os.getcwd() if request.file else "",
        ours=ours,
        table=(*named.table, *of_versions),
        environments=environments,
        only=request.only,
        without=request.without,
        confirm=CONFIRM if request.confirm is None else request.confirm,
        confidence=request.confidence or 0.95,
        budget=Budget(request.max_trials, request.max_time),
        flaky=request.flaky,
        describe=request.describe,
        crash=request.crash,
        to_end=request.keep_watching,
        has_gpu=gpus > 0,
        options={**_options_to_keep(request), STARTED_IN: os.getcwd(), MARK: named.mark},
        again=_resume_command(folder, request),
    )
    return IsolationJob(
        plan=check_plan(plan),
        folder=folder,
        watch={**named.watch, **request.watch},
        limit=request.limit or DEFAULT_LIMIT,
        gpus=gpus,
        recorded=recorded.trials if recorded else (),
    )


def _make_version_toggles(
    request: IsolationRequest, command: Sequence[str], environ: Mapping[str, str], folder: Path
) -> tuple[VersionEnvironments | None, tuple[Toggle, ...]]:
    """Return what makes the environments of --version, and its toggles. Raises HangbisectError."""
    if not request.versions or not command:
        return None, ()
    from . import package_versions as versions

    wanted = versions.parse_versions(request.versions)
    uv, python = versions.find_uv(environ), versions.find_python(command, environ)
    if not python:
        raise UsageError(
            f"--version: no Python is named by the command, or is in PATH: {shlex.join(command)}",
            "hangbisect isolate --version vllm=0.19.1 -- /path/of/env/bin/python train.py",
        )
    made = versions.VersionEnvironments(versions.read_python(python), uv, folder)
    return made, made.make_toggles(wanted)


def _choose_folder(request: IsolationRequest) -> Path:
    new = os.path.join("runs", f"iso-{stamp()}-{os.getpid():x}")
    folder = Path(request.resume or request.folder or new)
    if not request.resume and (folder / ISOLATION_FILE).exists():
        raise UsageError(
            f"{folder} has an isolation in it already",
            f"Go on with it: --resume {folder}; or name another folder with --run-dir.",
        )
    return folder


def _options_to_keep(request: IsolationRequest) -> dict[str, object]:
    """Return what is written down for who resumes."""
    plain = asdict(request)
    return {name: value for name, value in plain.items() if name not in _OF_THE_MOMENT}


def _resume_command(folder: Path, request: IsolationRequest) -> str:
    words = ["hangbisect", "isolate", "--resume", str(folder)]
    if mask_command(request.command) != list(request.command):
        # A secret in it was not written down.
        words += ["--", *request.command]
    return shlex.join(words)


def _resume_request(request: IsolationRequest, recorded: Isolation) -> IsolationRequest:
    """Return what was asked for when it began; what is said now has the last word."""
    if request.file:
        raise UsageError("--resume goes on with what was begun: it takes no file beside it")
    was = _original_request(recorded, request)
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
    return replace(request, file=was.file, **_unsaid_wishes(request, asdict(was)))


def _original_request(recorded: Isolation, request: IsolationRequest) -> IsolationRequest:
    """Return what was asked for when it began. Raises UsageError for what cannot be asked for."""
    own = (STARTED_IN, MARK, MASKED)
    try:
        was = from_json(
            IsolationRequest, {n: value for n, value in recorded.options.items() if n not in own}
        )
        for name in ("limit", "confidence", "max_trials", "max_time"):
            if (value := getattr(was, name)) is not None and not value > 0:
                raise ValueError(f"{name!r} cannot be {value!r}")
        if (was.confidence or 0) >= 1 or (was.confirm or 0) < 0:
            raise ValueError(f"'confidence' is {was.confidence}, 'confirm' {was.confirm}")
    except ValueError as error:
        raise UsageError(
            f"{request.resume}/{ISOLATION_FILE} has options that isolate does not write: {error}",
            "Begin anew, without --resume.",
        ) from None
    return was


def _unsaid_wishes(request: IsolationRequest, wishes: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of `wishes` of which the request itself says nothing."""
    own = {name: value for name, value in wishes.items() if name not in (*_OF_THE_MOMENT, "file")}
    return {name: value for name, value in own.items() if _is_unsaid(getattr(request, name))}


def _is_unsaid(value: object) -> bool:
    return value is None or value is False or value in ((), {})


@dataclass(frozen=True)
class ScenarioJob:
    """What is to be started, and what is wished for it where the command line says nothing."""

    command: tuple[str, ...]
    ours: bool = False  # it walks a pipeline of ours
    environment: Mapping[str, str] = field(default_factory=dict)  # beside our own
    watch: Mapping[str, str] = field(default_factory=dict)
    table: tuple[Toggle, ...] = TOGGLES
    wishes: Mapping[str, Any] = field(default_factory=dict)
    mark: str = ""  # of what a file says of the job: two that differ cannot share their starts


def read_scenario_job(word: str) -> ScenarioJob:
    """Return what the scenario file `word` (a path, or the name of one of ours) names.

    Raises UsageError for a file that is not right, MissingLibrary where what reads it is not
    installed.
    """
    from . import scenario_file

    scenario = scenario_file.load_scenario(word)
    from ..search.cells import list_cells
    from ..search.scenario_checks import toggles_of_scenario
    from .matrix import MatrixContext, cell_mark, make_launch

    (whole,) = list_cells(scenario.model_copy(update={"settings": (), "axes": {}}))
    table = toggles_of_scenario(scenario)
    watch = scenario.watch.options()
    started = make_launch(whole, MatrixContext(table, watch, Path(), Path()), {})
    # The watch and the limit may be changed while one isolates.
    same_job = cell_mark(replace(whole, limit=0.0), MatrixContext(table, {}, Path(), Path()))
    asked = scenario.isolate
    return ScenarioJob(
        command=started.command,
        ours=whole.pipeline is not None,
        environment=started.environment,
        watch=watch,
        table=table,
        wishes={
            "only": asked.only,
            "without": asked.without,
            "max_trials": asked.max_trials,
            "max_time": asked.max_time,
            "confirm": asked.confirm,
            "confidence": asked.confidence,
            "limit": scenario.limit,
        },
        mark=same_job,
    )
