"""All processes of this machine, as far as they may be read: names, words, variables, parents."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ..evidence.aside import within
from ..evidence.command import uid_of, variables_of, words_of
from ..evidence.sample import Stat, pids, stat
from ..rank.claims import Ancestor

LIMIT = 1.5  # seconds for all of /proc
_BLOCKED = 0.1  # seconds for one process in the kernel, whose memory may be locked
_KTHREADD = 2  # the parent of the kernel's threads; in a container that pid is anybody's
# Jupyter's kernel; those of Colab and Spyder.
_NOTEBOOK = ("ipykernel_launcher", "ipykernel", "colab_kernel_launcher", "spyder_kernels.console")


@dataclass(frozen=True)
class Process:
    """One process. `environ` is what it was started with; None where it may not be read."""

    pid: int
    ppid: int
    uid: int
    started: int  # clock ticks after boot
    name: str
    state: str
    words: tuple[str, ...]
    environ: Mapping[str, str] | None
    python: bool

    @cached_property
    def launcher(self) -> str | None:
        """The launcher that it is, None for any other program."""
        return Ancestor({}, self.words).launcher

    @cached_property
    def notebook(self) -> bool:
        """It is the kernel of a notebook, or was forked by one."""
        return any(word.rpartition("/")[2].removesuffix(".py") in _NOTEBOOK for word in self.words)

    @cached_property
    def ours(self) -> bool:
        """It belongs to us: a monitor, or a command of ours that is not walking a pipeline."""
        return self.words[1:3] == ("-I", "-S") and "monitor" in self.words[4:5]


Table = Mapping[int, Process]


def table(limit: float = LIMIT) -> dict[int, Process]:
    """Return all processes by pid. Those that do not answer within `limit` seconds are left out."""
    found: dict[int, Process] = {}

    def body() -> None:
        kernels = stat(_KTHREADD)
        has_threads = kernels is not None and kernels.comm == "kthreadd"
        for pid in pids():
            about = stat(pid)
            if about is None or (has_threads and _KTHREADD in (pid, about.ppid)):
                continue
            found[pid] = _read(pid, about)

    try:
        within(limit, body)
    except TimeoutError:
        return dict(found)
    return found


def above(processes: Table, pid: int) -> Iterator[Process]:
    """Yield the processes above one, its parent first."""
    passed = {pid}
    one = processes.get(pid)
    while one is not None and one.ppid in processes and one.ppid not in passed:
        passed.add(one.ppid)
        one = processes[one.ppid]
        yield one


def below(processes: Table, roots: set[int]) -> set[int]:
    """Return the descendants of `roots`, without them."""
    children: dict[int, list[int]] = {}
    for one in processes.values():
        children.setdefault(one.ppid, []).append(one.pid)
    found: set[int] = set()
    ahead = [child for root in roots for child in children.get(root, ())]
    while ahead:
        pid = ahead.pop()
        if pid not in found:
            found.add(pid)
            ahead += children.get(pid, ())
    return found - roots


def ourselves(processes: Table) -> set[int]:
    """Return this process, those above it, and those that it started."""
    me = os.getpid()
    return {me, *(one.pid for one in above(processes, me)), *below(processes, {me})}


def _read(pid: int, about: Stat) -> Process:
    words: tuple[str, ...] = ()
    environ: dict[str, str] | None = None
    uid = uid_of(pid)
    if about.state not in "ZX":
        with contextlib.suppress(TimeoutError):
            words, environ = (
                within(_BLOCKED, _words_and_variables, pid)
                if about.state == "D"
                else _words_and_variables(pid)
            )
    return Process(
        pid=pid,
        ppid=about.ppid,
        uid=-1 if uid is None else uid,
        started=about.started,
        name=about.comm,
        state=about.state,
        words=words,
        environ=environ,
        python=_is_python(pid, words),
    )


def _words_and_variables(pid: int) -> tuple[tuple[str, ...], dict[str, str] | None]:
    return words_of(pid), variables_of(pid)


def _is_python(pid: int, words: tuple[str, ...]) -> bool:
    try:
        name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:  # another user's: what it was started as tells
        name = os.path.basename(words[0]) if words else ""
    return name.startswith(("python", "pypy"))
