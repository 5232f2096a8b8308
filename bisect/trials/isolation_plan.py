"""What an isolation is to do (the command, the toggles that may be changed about it, limits), and
its starts: counted, kept, never more than was asked for, none done twice.

Each start gets a folder of its own and a launch; before the next one it has given everything
back.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.command_words import starts_one_node
from ..base.errors import HangbisectError, UsageError, nearest
from ..base.lazy_dataclass import dataclass
from ..base.variables import ASKED, format_toggle_values, parse_toggle_values
from ..base.variables import VARIABLE as STEER
from ..base.verdict_facts import Setting, Trial
from ..base.words import format_seconds
from ..search.isolation import CACHE_VARIABLES
from ..toggles.command_toggles import (
    AppliedSetting,
    Known,
    ReachedToggles,
    apply_setting,
    find_usable_toggles,
)
from ..toggles.table import TOGGLES, showing_races
from ..toggles.toggle import AS_SET, Toggle
from .launch import read_executables
from .resources import free_now, wait_until_free
from .trial import try_setting

if TYPE_CHECKING:
    from .package_versions import VersionEnvironments
    from .trial import Question


@dataclass(frozen=True)
class StartRequest:
    """What is to be started."""

    setting: Setting
    question: Question
    why: str  # which part of the search asks, for the story


# One launch. It gets its number, and the seconds it may take (None: its own limits are all).
Start = Callable[[int, StartRequest, float | None], Trial]


class NoMoreStarts(Exception):
    """No further start: it was interrupted, or the starts or the time asked for are used up."""

    def __init__(self, why: str, interrupted: bool = False) -> None:
        super().__init__(why)
        self.interrupted = interrupted


@dataclass(frozen=True)
class Budget:
    """How much may be spent. None: as much as it takes."""

    starts: int | None = None
    seconds: float | None = None


class Starts:
    """The starts of one isolation."""

    def __init__(
        self,
        start: Start,
        note: Callable[[], None],
        budget: Budget,
        recorded: Sequence[Trial] = (),
        stopping: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`note` is called after every trial. `recorded` are trials of an isolation that was
        interrupted: who asks for the same setting again gets them, in order. `clock` in seconds.
        """
        self.trials: list[Trial] = []
        self._start = start
        self._note = note
        self._budget = budget
        self._recorded = list(recorded)
        self._stopping = stopping or threading.Event()
        self._clock = clock
        # As if these had been made now: the time between them is not known any more.
        self._began = clock() - sum(trial.seconds for trial in recorded)

    @property
    def all(self) -> tuple[Trial, ...]:
        """All trials, by number; also recorded ones that were not asked for again yet."""
        return tuple(sorted((*self.trials, *self._recorded), key=lambda trial: trial.number))

    def start(self, ask: StartRequest) -> tuple[Trial, bool]:
        """Return what came of one more start, and whether it was made only now.

        Raises NoMoreStarts.
        """
        known = self._known(ask.setting)
        if known is not None:
            self.trials.append(known)
            return known, False
        left = self._left()
        trial = self._start(max((t.number for t in self.all), default=0) + 1, ask, left)
        if self._stopping.is_set():
            raise NoMoreStarts(
                "interrupted", interrupted=True
            )  # what it would have shown is not known
        if left is not None and trial.seconds >= left and trial.result == "other":
            raise self._out_of_time()
        self.trials.append(trial)
        self._note()
        return trial, True

    def _known(self, setting: Setting) -> Trial | None:
        """Take the first recorded trial of this setting that was not taken yet."""
        for trial in self._recorded:
            if dict(trial.setting) == dict(setting):
                self._recorded.remove(trial)
                return trial
        return None

    def _left(self) -> float | None:
        """Return the seconds that the next start may take. Raises NoMoreStarts."""
        if self._stopping.is_set():
            raise NoMoreStarts("interrupted", interrupted=True)
        most = self._budget.starts
        if most is not None and len(self.all) >= most:
            raise NoMoreStarts(f"--max-trials {most} is reached")
        if self._budget.seconds is None:
            return None
        left = self._budget.seconds - (self._clock() - self._began)
        if left <= 0:
            raise self._out_of_time()
        return left

    def _out_of_time(self) -> NoMoreStarts:
        return NoMoreStarts(f"--max-time {format_seconds(self._budget.seconds or 0.0)} is reached")


OWN_CACHES = {"caches": "own"}  # no toggle of the table: each start gets empty ones


@dataclass(frozen=True)
class IsolationPlan:
    """What was asked for, and what can be changed."""

    command: tuple[str, ...]
    environ: Mapping[str, str]  # all variables that the command gets
    environment: Mapping[str, str] = field(default_factory=dict)  # those set beside our own
    folder: str = ""  # that a file's command is started in; "": where the person is
    ours: bool = False  # it walks a pipeline of ours
    table: tuple[Toggle, ...] = TOGGLES  # and a user's own
    only: tuple[str, ...] = ()  # toggles; none: all
    without: tuple[str, ...] = ()
    confirm: int = 3
    confidence: float = 0.95
    budget: Budget = field(default_factory=Budget)
    flaky: bool = False  # take it for one that comes and goes
    describe: bool = False
    crash: bool = False  # it crashes, and what avoids that is looked for
    to_end: bool = False  # of a script of the user's own no start ends before a hang was seen
    has_gpu: bool | None = None
    options: Mapping[str, object] = field(default_factory=dict)  # as asked, for who resumes
    again: str = ""  # the command that goes on with it
    environments: VersionEnvironments | None = None  # where versions of packages are toggles

    def apply(self, setting: Setting, table: Sequence[Toggle]) -> AppliedSetting:
        """Return what to start under a setting, in its environment. Raises UsageError."""
        made = apply_setting(self.command, setting, table, self.environ, self.ours)
        return self.environments.run_in(made, self.environ) if self.environments else made


@dataclass(frozen=True)
class UsableToggles:
    """The toggles that change anything about this command, each with the values it may get: the
    first is as the user runs it, the last the safest.
    """

    remedies: tuple[Toggle, ...]
    probes: tuple[Toggle, ...]
    unused: Mapping[str, str]  # why each other remedy is not tried

    def without_values(self, useless: Mapping[str, Collection[str]]) -> UsableToggles:
        """Return them without these values, by toggle; of one that has no other left it is said."""
        left, unused = [], dict(self.unused)
        for toggle in self.remedies:
            out = useless.get(toggle.name, ())
            values = tuple(value for value in toggle.values if value not in out)
            if len(values) > 1:
                left.append(replace(toggle, values=values))
            else:
                unused[toggle.name] = f"with {' and '.join(out)} it failed in another way"
        return replace(self, remedies=tuple(left), unused=unused)


def check_plan(plan: IsolationPlan) -> IsolationPlan:
    """Return the plan once it is known to be sound. Raises UsageError."""
    if not plan.command:
        raise UsageError(
            "isolate has no command to start",
            "hangbisect isolate -- torchrun --nproc_per_node=2 train.py",
        )
    if words := starts_one_node(plan.command):
        raise UsageError(
            f"{words}: the command starts the ranks of one node, and isolate would start it here "
            "alone",
            "Name what starts all nodes, hangbisect isolate -- srun ..., or one node alone; "
            "which node it is, if it is one: hangbisect nodes.",
        )
    known = [toggle.name for toggle in plan.table]
    for flag, names in (("--only", plan.only), ("--without", plan.without)):
        for name in names:
            if name not in known:
                raise UsageError(
                    f"{flag} names the toggle {name!r}, and there is none{nearest(name, known)}",
                    "`hangbisect toggles` lists them all.",
                )
    for toggle in plan.table:
        if toggle.name in plan.only and toggle.kind == "probe":
            raise UsageError(
                f"--only names {toggle.name}, a probe: it describes a hang, and is no remedy",
                "--describe starts the probes as well, once it is known what avoids the hang.",
            )
    return plan


def choose_toggles(
    plan: IsolationPlan, host: str | None = None, reached: ReachedToggles | None = None
) -> UsableToggles:
    """Return what can be changed about `host`, in what a user's own script has `reached`."""
    known = Known(has_gpu=plan.has_gpu, host=host, reached=reached)
    left, why_not = find_usable_toggles(plan.command, plan.environ, plan.table, known, plan.ours)
    remedies, unused = [], dict(why_not)
    for toggle in left:
        if plan.only and toggle.name not in plan.only:
            unused[toggle.name] = "not in --only"
        elif toggle.name in plan.without:
            unused[toggle.name] = "--without"
        elif toggle.kind == "remedy":
            remedies.append(toggle)
    names = [toggle.name for toggle in plan.table if toggle.kind == "remedy"]
    reasons = {name: why for name, why in unused.items() if name in names}
    probes = tuple(t for t in left if t.describes and t.name not in plan.without)
    remedies.sort(key=lambda toggle: not toggle.own)  # who declares some suspects them
    return UsableToggles(tuple(remedies), probes, reasons)


def base_of_flaky(plan: IsolationPlan) -> dict[str, str]:
    """Return what every start of a hang that comes and goes is set to: barriers may hide it."""
    return showing_races(plan.table) if plan.ours else {}


def all_at_safest(toggles: Sequence[Toggle]) -> Setting:
    """Return the setting with every toggle at its safest."""
    return {toggle.name: toggle.values[-1] for toggle in toggles}


def value_before(toggle: Toggle) -> str | None:
    """Return the value that the user runs it with, None where that is not known."""
    return None if toggle.values[0] == AS_SET else toggle.values[0]


_CACHES_FOLDER = "caches"  # in a start's folder: those that it gets in the place of the shared ones


class Starter:
    """Starts the plan's command under settings, one after the other."""

    def __init__(
        self,
        plan: IsolationPlan,
        folder: Path,
        watch: Mapping[str, str],
        limit: float | None,
        stopping: threading.Event,
        tell: Callable[[str], None],
    ) -> None:
        """`limit`: seconds for each start."""
        self._plan = plan
        self._folder = folder
        self._watch = watch
        self._limit = limit
        self._stopping = stopping
        self._tell = tell
        self._free_before = free_now()

    def start(self, number: int, ask: StartRequest, left: float | None) -> Trial:
        """Return what came of it, with what it held given back. Raises HangbisectError."""
        folder = self._folder / "trials" / f"{number:02}"
        made = self._applied(ask, folder)
        shutil.rmtree(folder, ignore_errors=True)  # of a start that was interrupted
        began = time.monotonic()
        if why := self._make_environment(made, left):
            took = round(time.monotonic() - began, 3)
            return Trial(
                *(number, dict(ask.setting), "other", None, took, made.command),
                *(dict(made.environment), str(folder), f"cannot be installed: {why}"),
            )
        if left is not None:
            left = max(0.0, left - (time.monotonic() - began))
        limits = [seconds for seconds in (self._limit, left) if seconds is not None]
        trial = try_setting(
            number,
            made,
            ask.setting,
            ask.question,
            folder,
            limit=min(limits, default=None),
            watch=self._watch,
            stopping=self._stopping,
        )
        shutil.rmtree(
            folder / _CACHES_FOLDER, ignore_errors=True
        )  # perhaps gigabytes, and of no further use
        environ = {**self._plan.environ, **made.environment}
        taken = wait_until_free(self._free_before, made.command, environ, self._stopping)
        if taken:
            self._tell(f"going on although {taken}")
        return self._check_environment(made, trial)

    def _make_environment(self, made: AppliedSetting, left: float | None) -> str:
        """Make the environment of a start, if it has one of its own; return why it cannot be."""
        from .package_versions import INSTALL_LIMIT, CannotInstall, describe_environment

        environments = self._plan.environments
        if environments is None or not made.versions:
            return ""
        began, is_there = time.monotonic(), environments.find_folder(made.versions).is_dir()
        limit = INSTALL_LIMIT if left is None else min(left, INSTALL_LIMIT)
        try:
            one = environments.make(made.versions, limit, self._stopping)
        except CannotInstall as error:
            return str(error)
        if not is_there:
            self._tell(describe_environment(one, time.monotonic() - began))
        return ""

    def _check_environment(self, made: AppliedSetting, trial: Trial) -> Trial:
        """Return the trial; one of which no rank ran in its environment says nothing of that."""
        if self._plan.environments is None or not made.versions:
            return trial
        own = str(self._plan.environments.find_folder(made.versions))
        used = read_executables(Path(trial.run_dir))
        if not used or any(one.startswith(own + os.sep) for one in used):
            return trial
        versions = ", ".join(f"{name} {of}" for name, of in made.versions.items())
        why = f"the command chose its Python itself, {used[0]}, which has not {versions}"
        return replace(trial, result="other", place=None, why=why)

    def _applied(self, ask: StartRequest, folder: Path) -> AppliedSetting:
        plan = self._plan
        toggles = {name: value for name, value in ask.setting.items() if name not in OWN_CACHES}
        # Where the script does not overrule a variable, the rank side leaves the call as it is.
        table = [replace(toggle, overruled=True) for toggle in plan.table]
        try:
            made = plan.apply(toggles, table)
        except UsageError as error:
            raise HangbisectError(str(error), error.help) from None
        caches = {}
        if len(toggles) < len(ask.setting):
            caches = {
                name: str(folder.resolve() / _CACHES_FOLDER / name.lower())
                for name in CACHE_VARIABLES
            }
        whole = {**plan.environment, **made.environment, **caches, **self._asked(made)}
        return replace(made, environment=whole)

    def _asked(self, made: AppliedSetting) -> dict[str, str]:
        """Return what lets a script of the user's own tell which toggles it comes to."""
        plan = self._plan
        if plan.ours:
            return {}
        asked = {
            toggle.name: ASKED for toggle in plan.table if toggle.reports_itself or toggle.in_code
        }
        set_to = {
            **parse_toggle_values(plan.environ.get(STEER, "")),
            **parse_toggle_values(made.environment.get(STEER, "")),
        }
        return {STEER: format_toggle_values({**asked, **set_to})}
