"""Make all checks at the same time, within a limit: the types of a check and of what it finds, and
what checks share (a process in words, several calls that may block at the same time).
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Literal, TypeVar

from ..base.deadline import call_with_limit, within
from ..base.launcher_env import Ancestor
from ..base.launchers import ALONE, DIALECTS
from ..base.lazy_dataclass import dataclass
from ..base.masking import mask_command
from ..base.place import Place
from ..base.proc import read_stat
from ..base.words import format_seconds, join_lines
from ..evidence import process as command

Level = Literal["problem", "warning", "unknown", "ok"]
LEVELS: tuple[Level, ...] = ("problem", "warning", "unknown", "ok")  # the worst first
F = TypeVar("F")


@dataclass(frozen=True)
class Finding:
    """A fact with its values, and the next step ("" where there is none)."""

    level: Level
    value: str
    next: str = ""


def ok(value: str) -> Finding:
    """Return a finding that nothing needs to be done about."""
    return Finding("ok", value)


def warning(value: str, next: str = "") -> Finding:
    """Return a finding that may make some jobs hang, or makes a hang harder to explain."""
    return Finding("warning", value, next)


def problem(value: str, next: str = "") -> Finding:
    """Return a finding that makes a job hang which needs what is wrong."""
    return Finding("problem", value, next)


def unknown(value: str) -> Finding:
    """Return that a check cannot say anything, and why."""
    return Finding("unknown", value)


@dataclass(frozen=True)
class Setting:
    """What the doctor stands in: the variables, the place in a job, the processes above it."""

    environ: Mapping[str, str]
    place: Place
    ancestors: tuple[Ancestor, ...] = ()  # the parent first
    pids: tuple[int, ...] = ()  # of the ancestors
    limit: float = 10.0  # seconds for everything

    def within(self, limit: float) -> Setting:
        """Return the same with another limit."""
        return replace(self, limit=limit)

    @property
    def nodes(self) -> int:
        """How many nodes the job has, or the allocation that it is about to be started in."""
        names = [name for words in DIALECTS.values() for name in words.nodes]
        for name in (*names, "PET_NNODES", "NNODES"):
            text = self.environ.get(name, "")
            if text.isascii() and text.isdigit() and 0 < int(text) < 10**6:
                return int(text)
        if self.place.launcher is None:
            return 1
        return max(1, -(-self.place.world_size // max(1, self.place.local_world_size)))

    @property
    def is_launched(self) -> bool:
        """A launcher started this process, and not a shell in which its variables were exported."""
        return self.launcher is not None or any(name in self.environ for name in ALONE)

    @property
    def launcher(self) -> str | None:
        """The launcher that runs above us; None where nothing but variables speaks of one."""
        return next((one.launcher for one in self.ancestors if one.launcher), None)


@dataclass(frozen=True)
class Check(Generic[F]):
    """A check: `read` asks the machine, and may block or fail; `judge` is pure.

    Checks with the same `read` share what it returns.
    """

    id: str  # stable: in --json, and in the reference
    title: str  # what must hold
    why: str  # what hangs where it does not
    read: Callable[[Setting], F]
    judge: Callable[[Setting, F], Iterable[Finding]]


@dataclass(frozen=True)
class CheckFamily:
    """Checks that belong together."""

    title: str
    checks: tuple[Check[Any], ...]


@dataclass(frozen=True)
class Found:
    """What a check has found."""

    check: Check[Any]
    finding: Finding


def read_nothing(setting: Setting) -> None:
    """Read nothing: the setting says it all."""


K = TypeVar("K")
T = TypeVar("T")


def run_in_threads(limit: float, calls: Mapping[K, Callable[[], T]]) -> dict[K, T | Exception]:
    """Return what each call returned or raised, TimeoutError if it did not within `limit` seconds.

    Each has a daemon thread, which is left behind when its call does not come back.
    """
    done: dict[K, T | Exception] = {}

    def body(key: K, call: Callable[[], T]) -> None:
        try:
            done[key] = call()
        except Exception as error:
            done[key] = error

    threads = [
        threading.Thread(target=body, args=item, name=f"doctor {item[0]}", daemon=True)
        for item in calls.items()
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + limit
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    late = TimeoutError(f"no answer within {limit:g} s")
    seen = dict(done)
    return {key: seen.get(key, late) for key in calls}


@dataclass(frozen=True)
class NotRead:
    """Why what a check needs could not be read."""

    why: str


@dataclass(frozen=True)
class Examination:
    """What all checks have found, in their order."""

    found: tuple[Found, ...]
    checks: int
    seconds: float

    @property
    def level(self) -> Level:
        """The worst level; what is not known is no worse than ok."""
        levels = {one.finding.level for one in self.found}
        return next((level for level in LEVELS if level in levels and level != "unknown"), "ok")

    def of(self, level: Level) -> tuple[Found, ...]:
        """Return what is of this level."""
        return tuple(one for one in self.found if one.finding.level == level)


def examine(setting: Setting, families: Sequence[CheckFamily]) -> Examination:
    """Return what the checks find. Takes `setting.limit` seconds at most, and a little."""
    begun = time.monotonic()
    checks = [check for family in families for check in family.checks]
    facts = asyncio.run(_read_facts(setting, checks))
    found = tuple(
        Found(check, finding)
        for check in checks
        for finding in judge_facts(setting, check, facts[check.read])
    )
    return Examination(found, len(checks), time.monotonic() - begun)


def judge_facts(setting: Setting, check: Check[Any], facts: Any) -> tuple[Finding, ...]:
    """Return what a check says of its facts. Never raises: no check may hide the others."""
    if isinstance(facts, NotRead):
        return (unknown(facts.why),)
    try:
        return tuple(check.judge(setting, facts))
    except Exception as error:
        return (unknown(_format_own_error(error)),)


async def _read_facts(
    setting: Setting, checks: Sequence[Check[Any]]
) -> dict[Callable[..., Any], Any]:
    reads = list(dict.fromkeys(check.read for check in checks))
    facts = await asyncio.gather(*(_read_within_limit(setting, read) for read in reads))
    return dict(zip(reads, facts, strict=True))


async def _read_within_limit(setting: Setting, read: Callable[[Setting], Any]) -> Any:
    try:
        return await call_with_limit(read, setting, limit=setting.limit)
    except TimeoutError:
        return NotRead(f"no answer within {setting.limit:g} s")
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        return NotRead(f"{error.strerror or error}{where}")
    except Exception as error:
        return NotRead(_format_own_error(error))


def _format_own_error(error: Exception) -> str:
    return f"hangbisect's own error: {type(error).__name__}: {error}"


_TICKS = os.sysconf("SC_CLK_TCK")
_LONGEST = 70  # characters of a command
_READ = 0.3  # seconds: a process in state D may block the one that reads its words
_DEEPEST = 30


@dataclass(frozen=True)
class CheckedProcess:
    """A process of this machine. `age` in seconds; `uid` None if it is gone."""

    pid: int
    name: str
    words: tuple[str, ...] = ()
    age: float | None = None
    uid: int | None = None

    def __str__(self) -> str:
        """Return 'python (4711, 3.0 h old, "python train.py")'."""
        words = list(self.words)
        if words:
            words[0] = os.path.basename(words[0])
        typed = join_lines(" ".join(mask_command(words)))
        if len(typed) > _LONGEST:
            typed = typed[: _LONGEST - 3] + "..."
        old = f", {format_seconds(self.age)} old" if self.age is not None else ""
        return f"{self.name} ({self.pid}{old}" + (f', "{typed}")' if typed else ")")


def process(pid: int) -> CheckedProcess:
    """Return what is known of a process; its name is "?" if it is gone."""
    found = read_stat(pid)
    if found is None:
        return CheckedProcess(pid, "?")
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - found.started / _TICKS
    return CheckedProcess(pid, found.comm, words_of(pid), max(0.0, age), command.uid_of(pid))


def words_of(pid: int) -> tuple[str, ...]:
    """Return the command line of a process, () if it cannot be had in time."""
    try:
        return within(_READ, command.words_of, pid)
    except TimeoutError:
        return ()


def variables_of(pid: int) -> dict[str, str]:
    """Return the variables that a process was started with, {} if they cannot be had in time."""
    try:
        return within(_READ, command.variables_of, pid) or {}
    except TimeoutError:
        return {}


def ancestors() -> Iterator[tuple[int, Ancestor]]:
    """Yield the processes above us, the parent first."""
    pid = os.getppid()
    for _ in range(_DEEPEST):
        found = read_stat(pid) if pid > 0 else None
        if found is None:
            return
        yield pid, Ancestor(variables_of(pid), words_of(pid))
        pid = found.ppid
