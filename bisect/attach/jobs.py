"""Which ranks make one job, and what else belongs to it: what started them, its command, its world.

Ranks below the same launcher make one job, and so do ranks of launchers with the same run:
torchelastic's run id, the address where ranks meet, a step of Slurm's. Two ranks with the same
number are never of one job: what an earlier start has left behind meets at the same default
port.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..base.command_words import can_be_typed
from ..base.launchers import BY_PROGRAM, DIALECTS
from ..base.lazy_dataclass import dataclass
from ..base.place import FOLDER_VARIABLE
from ..base.process_roles import is_spawned_by_server
from .processes import (
    Process,
    ProcessTable,
    processes_above,
    processes_below,
)
from .ranks import STARTERS, Rank

_TICKS = os.sysconf("SC_CLK_TCK")
_TORCHRUNS_DEFAULT = "none"  # torchrun's --rdzv-id
_RUN_DIR_VARIABLE = "HANGBISECT_RUN_DIR"
_OUR_NAMES = ("bisect", "hangbisect")  # as a module or a folder
_LOOPBACK = ("127.", "localhost", "::1")


@dataclass(frozen=True)
class Job:
    """The processes of one job on this machine."""

    ranks: tuple[Rank, ...]  # in the order of their numbers, unknown ones last
    launchers: tuple[int, ...] = ()  # what started the ranks and belongs to the job
    command: tuple[str, ...] = ()  # as one types it
    world: int = 0  # as its ranks have it; those on this machine where nobody says
    whole: bool = True  # all its ranks are to be on this machine
    notebook: int | None = None  # the kernel of a notebook that started it, or is it
    watched: str | None = None  # a watch of ours is there: its run folder, "" if not known
    uid: int = 0
    started: int = 0  # of its first process, clock ticks after boot

    @property
    def began(self) -> float:
        """When its first process started, on the monotonic clock."""
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - self.started / _TICKS
        return time.monotonic() - age

    @property
    def pids(self) -> frozenset[int]:
        """The processes of ranks and of what started them."""
        return frozenset({*(rank.pid for rank in self.ranks), *self.launchers})

    @property
    def has_one_command(self) -> bool:
        """Its command starts all of its ranks: it is not that of one rank among several, which
        something that is not seen has started, nor the kernel of a notebook, nor a title.
        """
        one_by_one = not self.launchers and all(
            r.by == "environment" or (r.by == "arguments" and r.launcher is None)
            for r in self.ranks
        )
        is_part = self.notebook is not None or (one_by_one and self.world > 1)
        return can_be_typed(self.command) and not is_part

    @property
    def pid(self) -> int:
        """The process to name it by: what started it, else its first rank."""
        return self.launchers[0] if self.launchers else self.ranks[0].pid


def group_ranks(processes: ProcessTable, ranks: Sequence[Rank]) -> list[Job]:
    """Return the jobs that these ranks make, the latest first."""
    groups: list[list[Rank]] = []
    for part in _group_by_launcher(processes, ranks):
        same = next((g for g in groups if _is_same_job(processes, g, part)), None)
        if same is None:
            groups.append(part)
        else:
            same += part
    jobs = [_make_job(processes, group) for group in groups]
    return sorted(jobs, key=lambda job: -job.started)


def find_idle_launchers(
    processes: ProcessTable, jobs: Iterable[Job], spared: set[int]
) -> list[Job]:
    """Return the launchers that have started nobody, as jobs without ranks."""
    busy = {pid for job in jobs for pid in job.pids}
    found = []
    for one in processes.values():
        idle = one.launcher in STARTERS and one.pid not in busy and one.pid not in spared
        inside = any(other.launcher in STARTERS for other in processes_above(processes, one.pid))
        if idle and not inside and not processes_below(processes, {one.pid}) & busy:
            found.append(_job_of_launcher(processes, one))
    return found


def make_lone_job(processes: ProcessTable, pid: int, sure: bool = True) -> Job:
    """Return the job that one process is by itself; not `sure`, it may be one of several ranks, or
    have started them.
    """
    one = processes[pid]
    return Job(
        ranks=(Rank(pid, 0 if sure else None, 0, 1, None, "", "alone"),),
        command=format_command(one.words),
        world=1,
        notebook=pid if one.notebook else None,
        uid=one.uid,
        started=one.started,
    )


def make_job_of_programs(processes: ProcessTable, pid: int, numbers: Mapping[int, int]) -> Job:
    """Return the job of the programs that one process has started with these numbers, by pid. A
    person's shell is none of it: `--kill` ends a job whole.
    """
    starter = processes[pid] if processes[pid].has_script else None
    jobs = [make_lone_job(processes, one) for one in numbers]
    ranks = [replace(job.ranks[0], number=numbers[job.pid], by="arguments") for job in jobs]
    return replace(
        jobs[0],
        ranks=tuple(sorted(ranks, key=lambda rank: rank.number or 0)),
        launchers=(starter.pid,) if starter is not None else (),
        command=format_command(starter.words) if starter is not None else jobs[0].command,
        world=len(ranks),
        started=min(job.started for job in jobs),
    )


def join_jobs(jobs: Sequence[Job]) -> Job:
    """Return one job of all these, where a person says that they are one. Which ranks processes are
    that stood alone is not known then, nor which are those that have the number of one of the first
    job, as the workers of a trainer's server have.
    """
    if len(jobs) == 1:
        return jobs[0]
    ranks = [r if r.by != "alone" else replace(r, number=None) for j in jobs for r in j.ranks]
    numbers = [r.number for r in ranks if r.number is not None]
    if len(numbers) != len(set(numbers)):
        first = {r.pid for r in jobs[0].ranks}
        ranks = [r if r.pid in first else replace(r, number=None) for r in ranks]
    return replace(
        jobs[0],
        ranks=tuple(sorted(ranks, key=lambda r: (r.number is None, r.number or 0, r.pid))),
        launchers=tuple(dict.fromkeys(pid for job in jobs for pid in job.launchers)),
        world=max([*(job.world for job in jobs), len(ranks)]),
        started=min(job.started for job in jobs),
    )


def format_command(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command as one types it: console scripts run as `python /path/to/torchrun ...`."""
    if not words:
        return ()
    script = os.path.basename(words[1]) if len(words) > 1 else ""
    rest = words[1:] if script in BY_PROGRAM else words
    return (os.path.basename(rest[0]), *rest[1:])


# ---- groups -------------------------------------------------------------------------------------


def _group_by_launcher(processes: ProcessTable, ranks: Sequence[Rank]) -> list[list[Rank]]:
    """Return the ranks by what started them; of two with the same number the one that is older, or
    else the Python, is the rank, and the other no rank at all.
    """
    found: dict[object, list[Rank]] = {}
    for rank in sorted(ranks, key=lambda r: (processes[r.pid].started, r.pid)):
        key: object = (
            rank.launcher or _run_names(processes, rank)[:1] or _key_of_nameless(processes, rank)
        )
        part = found.setdefault(key, [])
        place = next((i for i, r in enumerate(part) if r.number == rank.number), None)
        if rank.number is None or place is None:
            part.append(rank)
        elif _are_twins(part[place], rank):
            part[place] = replace(part[place], twin=rank.pid)
    return list(found.values())


def _are_twins(one: Rank, other: Rank) -> bool:
    """Return whether two local ranks have one number: what a rank starts has its LOCAL_RANK too."""
    return None not in (one.local, other.local) and one.local != other.local


def _key_of_nameless(processes: ProcessTable, rank: Rank) -> object:
    """Return what ranks that nothing names have in common: their shell, and perhaps a program."""
    is_of_family = rank.by in ("stack", "arguments")
    if rank.first is not None:
        return ("first", rank.first)
    return (processes[rank.pid].ppid, rank.program) if is_of_family else rank.pid


def _is_same_job(processes: ProcessTable, group: Sequence[Rank], part: Sequence[Rank]) -> bool:
    numbers = {rank.number for rank in group} & {rank.number for rank in part}
    runs = {run for rank in group for run in _run_names(processes, rank)}
    worlds = {rank.world for rank in (*group, *part)}
    uids = {processes[rank.pid].uid for rank in (*group, *part)}
    same = any(run in runs for rank in part for run in _run_names(processes, rank))
    return same and not numbers and len(worlds) == 1 and len(uids) == 1


def _run_names(processes: ProcessTable, rank: Rank) -> tuple[tuple[str, ...], ...]:
    """Return what names the run that a rank belongs to, the surest first."""
    return _run_names_in(processes[rank.pid].environ or {})


def _run_names_in(environ: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    names: list[tuple[str, ...]] = []
    for dialect, words in DIALECTS.items():
        values = [environ.get(name, "") for name in words.job]
        if values and all(values) and values != [_TORCHRUNS_DEFAULT]:
            names.append((dialect, *values))
    if environ.get("MASTER_ADDR") and environ.get("MASTER_PORT"):
        names.append(("master", environ["MASTER_ADDR"], environ["MASTER_PORT"]))
    return tuple(names)


# ---- a job --------------------------------------------------------------------------------------


def _make_job(processes: ProcessTable, group: Sequence[Rank]) -> Job:
    ranks = tuple(sorted(group, key=lambda r: (r.number is None, r.number or 0, r.pid)))
    launchers = tuple(
        dict.fromkeys(
            pid
            for rank in ranks
            if rank.launcher is not None and _has_launcher_in_job(processes, rank)
            for pid in (*_list_servers_above(processes, rank.launcher), rank.launcher)
        )
    )
    first = processes[ranks[0].pid]
    world = max((rank.world or 0 for rank in ranks), default=0)
    return Job(
        ranks=ranks,
        launchers=launchers,
        command=_find_command(processes, ranks, launchers),
        world=max(world, len(ranks)),
        whole=_is_whole(processes, ranks, world),
        notebook=_find_notebook(processes, ranks),
        watched=_find_watch(processes, ranks),
        uid=first.uid,
        started=min(processes[rank.pid].started for rank in ranks),
    )


def _has_launcher_in_job(processes: ProcessTable, rank: Rank) -> bool:
    """Return whether what started a rank is a part of the job: a launcher, or the script that made
    it; not a shell, slurmstepd, or the kernel of a notebook.
    """
    one = processes.get(rank.launcher or 0)
    if one is None or one.notebook or one.pid == rank.pid:
        return False
    if one.launcher is not None:  # a container's first process, perhaps
        return one.launcher in STARTERS
    return rank.by == "stack" and one.python and one.pid != 1


def _list_servers_above(processes: ProcessTable, pid: int) -> list[int]:
    """Return what has started a process of an inference server, the server itself first."""
    found: list[int] = []
    for above in processes_above(processes, pid):
        one = processes[pid]
        if not (is_spawned_by_server(one.server, pid, one.session) and above.python):
            break
        found.insert(0, above.pid)
        pid = above.pid
    return found


def _find_command(
    processes: ProcessTable, ranks: Sequence[Rank], launchers: Sequence[int]
) -> tuple[str, ...]:
    if not launchers:
        by_arguments = ranks[0].by == "arguments"
        typed = ranks[0].launcher if by_arguments and ranks[0].launcher else ranks[0].pid
        return format_command(processes[typed].words)
    outermost = processes[launchers[0]]
    for one in processes_above(processes, outermost.pid):
        if one.launcher in STARTERS:  # DeepSpeed's starts another one, which starts the ranks
            outermost = one
    return format_command(outermost.words)


def _is_whole(processes: ProcessTable, ranks: Sequence[Rank], world: int) -> bool:
    """Return whether no rank of the job is to be on another machine, as far as its variables tell:
    a group of one node, as many ranks on this one as there are, or ranks that meet at home.
    """
    last = max((rank.local for rank in ranks if rank.local is not None), default=-1)
    if world <= max(len(ranks), last + 1):
        return True
    environ = processes[ranks[0].pid].environ or {}
    torchruns = DIALECTS["torchrun"]
    own = DIALECTS.get(ranks[0].dialect, torchruns)
    for name in (*torchruns.nodes, *own.nodes):
        if environ.get(name):
            return environ[name] == "1"
    for name in (torchruns.local_world_size, own.local_world_size):
        if environ.get(name):
            return environ[name] == str(world)
    return (environ.get("MASTER_ADDR") or ranks[0].master).startswith(_LOOPBACK)


def _find_notebook(processes: ProcessTable, ranks: Sequence[Rank]) -> int | None:
    for rank in ranks:
        line = processes_above(processes, rank.pid)
        if not (processes[rank.pid].notebook or any(one.notebook for one in line)):
            return None
    first = [one for one in processes_above(processes, ranks[0].pid) if one.notebook]
    return first[-1].pid if first else ranks[0].pid


def _find_watch(processes: ProcessTable, ranks: Sequence[Rank]) -> str | None:
    """Return the run folder of a watch of ours, "" where it is not known, None without a watch. A
    rank sets the watch's variables in itself, where nobody sees them: its monitor has those of its
    launcher.
    """
    runs = {run for rank in ranks for run in _run_names(processes, rank)}
    watched = False
    for rank in ranks:
        one = processes[rank.pid]
        environ = one.environ or {}
        if folder := environ.get(_RUN_DIR_VARIABLE) or _read_option(one.words, "--run-dir"):
            return folder
        watched |= FOLDER_VARIABLE in environ
    return (
        ""
        if watched or any(_run_names_of_process(m) & runs for m in _find_monitors(processes))
        else None
    )


def _find_monitors(processes: ProcessTable) -> list[Process]:
    return [one for one in processes.values() if one.is_monitor]


def _run_names_of_process(one: Process) -> set[tuple[str, ...]]:
    return set(_run_names_in(one.environ or {}))


def _read_option(words: Sequence[str], flag: str) -> str:
    """Return the value of an option of ours in a rank's own command line, "" if it has none."""
    if not any(os.path.basename(word) in _OUR_NAMES for word in words[:4]):
        return ""
    for at, word in enumerate(words):
        name, sign, value = word.partition("=")
        if name == flag:
            return value if sign else "".join(words[at + 1 : at + 2])
    return ""


def _job_of_launcher(processes: ProcessTable, one: Process) -> Job:
    return Job(
        ranks=(),
        launchers=(one.pid,),
        command=format_command(one.words),
        uid=one.uid,
        started=one.started,
    )
