"""Whether a program that starts ranks itself may start more of them.

A launcher starts all ranks of a node at once. A program that forks or spawns them may read data, or
sleep, before each.
"""

from __future__ import annotations

from collections.abc import Collection

from ..base.proc import read_stat
from .kernel import parse_syscall

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
    about = read_stat(pid)
    if pid <= 1 or about is None:
        return ""
    who = f"process {pid} ({about.comm}), which starts the ranks,"
    if about.state in ("R", "D"):
        return f"{who} {'computes' if about.state == 'R' else 'reads or writes a file'}"
    try:
        with open(f"/proc/{pid}/syscall", errors="replace") as file:
            call = parse_syscall(file.read())
    except OSError:
        return ""
    return f"{who} sleeps" if call is not None and call.name in _SLEEPS else ""
