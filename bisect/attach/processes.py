"""The table of all processes of this machine, as far as they may be read: names, words, variables,
parents.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping
from functools import cached_property

from ..base import process_roles
from ..base.command_words import (
    is_resource_tracker,
    starts_for_multiprocessing,
    starts_no_rank,
)
from ..base.deadline import within
from ..base.errors import UsageError
from ..base.launcher_env import Ancestor
from ..base.lazy_dataclass import dataclass
from ..base.proc import Stat, list_pids, read_stat
from ..base.process_roles import ServerProcess, find_server_process
from ..base.variables import FRONT_VARIABLE
from ..evidence.process import has_loaded_library, runs_python, uid_of, variables_of, words_of

# Seconds for all of /proc: 200 processes take 0.04 s of a core; where 20 processes want each core,
# 0.6 to 2 s.
TABLE_LIMIT = 5.0
_BLOCKED_LIMIT = 0.1  # seconds for one process in the kernel, whose memory may be locked
_KTHREADD = 2  # the parent of the kernel's threads; in a container that pid is anybody's
# Jupyter's kernel; those of Colab and Spyder.
_NOTEBOOK_KERNELS = (
    "ipykernel_launcher",
    "ipykernel",
    "colab_kernel_launcher",
    "spyder_kernels.console",
)


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
    session: int = 0  # the pid of its leader (setsid(2)), 0 if it is not known

    @cached_property
    def is_part_of_launcher(self) -> bool:
        """Whether it starts ranks or belongs to what does, and is no rank itself."""
        return Ancestor({}, self.words).is_part_of_launcher

    @cached_property
    def is_resource_tracker(self) -> bool:
        """Whether it is the helper that multiprocessing starts beside a job's own processes."""
        return is_resource_tracker(self.words)

    @cached_property
    def is_of_multiprocessing(self) -> bool:
        """Whether multiprocessing has started it: no program of its own."""
        return starts_for_multiprocessing(self.words)

    @cached_property
    def launcher(self) -> str | None:
        """The launcher that it is, None for any other program."""
        return Ancestor({}, self.words).launcher

    @cached_property
    def notebook(self) -> bool:
        """It is the kernel of a notebook, or was forked by one."""
        return any(
            word.rpartition("/")[2].removesuffix(".py") in _NOTEBOOK_KERNELS for word in self.words
        )

    @cached_property
    def is_own(self) -> bool:
        """It is a process of ours that no person starts: a monitor, or what that has started."""
        return self.words[1:3] == ("-I", "-S") and any(map(has_own_name, self.words[3:4]))

    @cached_property
    def is_monitor(self) -> bool:
        """It is a monitor of ours."""
        return self.is_own and self.words[4:5] == ("monitor",)

    @cached_property
    def is_run(self) -> bool:
        """It is `hangbisect run`, or a copy that it has made of itself."""
        words = itertools.dropwhile(lambda word: not has_own_name(word), self.words[:6])
        return self.python and tuple(words)[1:2] == ("run",)

    @cached_property
    def is_service(self) -> bool:
        """It serves a cluster of Ray, and runs no code of the job."""
        return process_roles.is_service(self.words)

    @cached_property
    def actor(self) -> str:
        """What it runs as a worker of Ray: "Trainer.train"; "" for any other process."""
        return process_roles.find_actor(self.words)

    @cached_property
    def server(self) -> ServerProcess | None:
        """What it does in an inference server, None for any other process."""
        return find_server_process(self.words)

    @cached_property
    def is_rank_of_server(self) -> bool:
        """Whether it is a rank of an inference server, as its title says."""
        return self.server is not None and self.server.is_rank

    @cached_property
    def has_script(self) -> bool:
        """It was given something to run: a person's shell was not, and is part of no job."""
        return any(not word.startswith("-") for word in self.words[1:])

    @cached_property
    def is_front(self) -> bool:
        """It is what stands in front of a command (`hangbisect run`), or was forked by that: the
        variables of a rank that it has are those of the command below it.
        """
        return self.python and starts_no_rank(self.words)


ProcessTable = Mapping[int, Process]


def read_processes(limit: float = TABLE_LIMIT) -> dict[int, Process]:
    """Return all processes by pid. Those that do not answer within `limit` seconds are left out."""
    found: dict[int, Process] = {}

    def body() -> None:
        for pid in list_pids():
            about = read_stat(pid)
            if about is not None and not is_of_kernel(pid, about):
                found[pid] = _read_process(pid, about)

    try:
        within(limit, body)
    except TimeoutError:
        return dict(found)
    return found


def is_of_kernel(pid: int, about: Stat) -> bool:
    """Return whether it is a thread of the kernel's."""
    if _KTHREADD not in (pid, about.ppid):
        return False
    first = about if pid == _KTHREADD else read_stat(_KTHREADD)
    return first is not None and first.comm == "kthreadd"


def make_no_such_process(pid: int, limit: float) -> UsageError:
    """Return what is wrong with a process that is not in a table which was read within `limit`."""
    about, others = read_stat(pid), "`hangbisect` alone lists the jobs that run here."
    if about is not None and about.state in "ZX":
        return UsageError(
            f"process {pid} ({about.comm}) has ended, and its parent {about.ppid} has not asked "
            "for its status",
            f"hangbisect attach {about.ppid} looks at what goes on without it.",
        )
    if about is not None and is_of_kernel(pid, about):
        return UsageError(f"{pid} ({about.comm}) is a thread of the kernel's", others)
    if about is not None:
        return UsageError(
            f"process {pid} is here, but the table of all processes was not read to its end in "
            f"{limit:g} s: the machine is very busy, or what a process has cannot be read",
            "Ask again; `hangbisect attach PID` of another process of the job may answer.",
        )
    return UsageError(
        f"there is no process {pid} here (it has ended, or belongs to another machine or "
        "container)",
        others,
    )


def processes_above(processes: ProcessTable, pid: int) -> Iterator[Process]:
    """Yield the processes above one, its parent first."""
    passed = {pid}
    one = processes.get(pid)
    while one is not None and one.ppid in processes and one.ppid not in passed:
        passed.add(one.ppid)
        one = processes[one.ppid]
        yield one


def has_own_name(path: str) -> bool:
    """Return whether a path is that of our program, our package, or a module of ours (`-m`)."""
    return os.path.basename(path) in ("hangbisect", "bisect")


def processes_below(processes: ProcessTable, roots: set[int]) -> set[int]:
    """Return the descendants of `roots`; one of them is in it if it stands below another."""
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
    return found


def find_own_processes(processes: ProcessTable) -> set[int]:
    """Return this process, those above it, and those that it started."""
    me = os.getpid()
    return {
        me,
        *(one.pid for one in processes_above(processes, me)),
        *processes_below(processes, {me}),
    }


def find_watched(processes: ProcessTable, pid: int) -> int:
    """Return `pid`; of a process of `hangbisect run`, whose words contain those of its command, and
    of a monitor the `hangbisect run` itself, below which the job is. Raises UsageError for one of
    ours of which that is not known.
    """
    one = processes[pid]
    if one.is_run:
        return _find_front(processes, one)
    line = [one, *processes_above(processes, pid)]
    own = next((above for above in line if above.is_monitor), None)
    if own is None and not one.is_own:
        return pid
    front = (own.environ or {}).get(FRONT_VARIABLE, "") if own is not None else ""
    found = processes.get(int(front)) if front.isascii() and front.isdecimal() else None
    if found is None or not found.is_run:
        raise UsageError(
            f"process {pid} is hangbisect's own, and watches a job",
            "Name a process of the job; `hangbisect` alone lists the jobs that run here.",
        )
    return found.pid


def _find_front(processes: ProcessTable, one: Process) -> int:
    """Return the process of `hangbisect run` that started the command, of which `one` may be a copy
    that has none: both have the same words, and the copy began later.
    """
    parents = {each.ppid for each in processes.values()}
    alike = [p for p in processes.values() if p.words == one.words and p.pid in parents]
    before = [p for p in alike if (p.started, p.pid) <= (one.started, one.pid)]
    return max(before, key=lambda p: (p.started, p.pid), default=one).pid


def has_library(one: Process) -> bool:
    """Return whether a process has loaded what makes a Python a part of a job."""
    return has_loaded_library(one.pid)


def _read_process(pid: int, about: Stat) -> Process:
    words: tuple[str, ...] = ()
    environ: dict[str, str] | None = None
    uid = uid_of(pid)
    if about.state not in "ZX":
        with contextlib.suppress(TimeoutError):
            words, environ = (
                within(_BLOCKED_LIMIT, _read_words_and_variables, pid)
                if about.state == "D"
                else _read_words_and_variables(pid)
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
        python=runs_python(pid, words),
        session=about.session,
    )


def _read_words_and_variables(pid: int) -> tuple[tuple[str, ...], dict[str, str] | None]:
    return words_of(pid), variables_of(pid)
