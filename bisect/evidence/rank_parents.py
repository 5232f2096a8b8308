"""Whether a program that starts ranks itself may start more of them.

A launcher starts all ranks of a node at once. A program that forks or spawns them may read data, or
sleep, before each.
"""

from __future__ import annotations

from collections.abc import Collection

from ..base.proc import read_stat
from .kernel import read_thread

_SLEEPS = frozenset(["nanosleep", "clock_nanosleep"])


def describe_busy_parent(ranks: Collection[int]) -> str:
    """Return in words which process, the parent of one of these (pids), is not done with starting
    ranks as far as its main thread shows: it sleeps or computes, and waits for nobody. "" for none.

    A rank that is the parent of others is none: it waits for them, or goes on without.
    """
    parents = {about.ppid for pid in ranks if (about := read_stat(pid)) is not None}
    for pid in sorted(parents - set(ranks)):
        if does := _describe_work(pid):
            return does
    return ""


def _describe_work(pid: int) -> str:
    main = read_thread(pid, pid, []) if pid > 1 else None
    if main is None:
        return ""
    who = f"process {pid} ({main.comm}), which starts the ranks,"
    if main.state in ("R", "D"):
        return f"{who} {'computes' if main.state == 'R' else 'reads or writes a file'}"
    is_asleep = main.syscall is not None and main.syscall.name in _SLEEPS
    return f"{who} sleeps" if is_asleep else ""
