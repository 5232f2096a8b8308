"""What a check is, what it is given, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from ..rank.claims import Ancestor
from ..rank.place import Place

Level = Literal["problem", "warning", "unknown", "ok"]
LEVELS: tuple[Level, ...] = ("problem", "warning", "unknown", "ok")  # the worst first
F = TypeVar("F")
# What launchers alone set.
_BY_A_LAUNCHER = ("TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_STEP_ID")


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
        for name in (
            "GROUP_WORLD_SIZE",
            "SLURM_STEP_NUM_NODES",
            "SLURM_NNODES",
            "PET_NNODES",
            "NNODES",
        ):
            text = self.environ.get(name, "")
            if text.isascii() and text.isdigit() and 0 < int(text) < 10**6:
                return int(text)
        if self.place.launcher is None:
            return 1
        return max(1, -(-self.place.world_size // max(1, self.place.local_world_size)))

    @property
    def is_launched(self) -> bool:
        """A launcher started this process, and not a shell in which its variables were exported."""
        return self.launcher is not None or any(name in self.environ for name in _BY_A_LAUNCHER)

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
class Family:
    """Checks that belong together."""

    title: str
    checks: tuple[Check[Any], ...]


@dataclass(frozen=True)
class Found:
    """What a check has found."""

    check: Check[Any]
    finding: Finding


def nothing(setting: Setting) -> None:
    """Read nothing: the setting says it all."""
