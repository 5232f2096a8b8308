"""A process in words: its name, its pid, how long it has run, its command."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ..base.deadline import within
from ..base.launcher_env import Ancestor
from ..base.masking import mask_command
from ..base.proc import read_stat
from ..base.words import format_seconds, join_lines
from ..evidence import process as command

_TICKS = os.sysconf("SC_CLK_TCK")
_LONGEST = 70  # characters of a command
_READ = 0.3  # seconds: a process in state D may hold whoever reads its words
_DEEPEST = 30


@dataclass(frozen=True)
class Process:
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


def process(pid: int) -> Process:
    """Return what is known of a process; its name is "?" if it is gone."""
    found = read_stat(pid)
    if found is None:
        return Process(pid, "?")
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - found.started / _TICKS
    return Process(pid, found.comm, words_of(pid), max(0.0, age), command.uid_of(pid))


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
