"""The jobs of this machine, or the one that a process belongs to: which ranks make one job, and
which of several jobs is meant.

Ranks below the same launcher make one job, and so do ranks of launchers with the same run:
torchelastic's run id, the address where ranks meet, a step of Slurm's. Two ranks with the same
number are never of one job: what an earlier start has left behind meets at the same default
port.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ..base.errors import UsageError
from ..base.launchers import BY_PROGRAM, DIALECTS, SRUN
from ..base.lazy_dataclass import dataclass
from ..base.place import FOLDER_VARIABLE
from ..base.proc import process_of_thread, read_stat
from ..diagnosis.proof_of_hang import waits_for_requests
from ..evidence.ray_cluster import find_driver
from .processes import (
    TABLE_LIMIT,
    Process,
    ProcessTable,
    find_own_processes,
    find_watched,
    has_library,
    make_no_such_process,
    processes_above,
    processes_below,
    read_processes,
)
from .ranks import STARTERS, Rank, ranks_from_environment, replace_supervisors
from .ranks_by_stack import (
    MOST,
    find_candidates,
    look_for_ranks,
    number_programs_below,
    read_ranks_from_stacks,
)

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
        something that is not seen has started, nor the kernel of a notebook.
        """
        one_by_one = not self.launchers and all(
            r.by == "environment" or (r.by == "arguments" and r.launcher is None)
            for r in self.ranks
        )
        return self.notebook is None and not (one_by_one and self.world > 1)

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


def _make_job_of_programs(processes: ProcessTable, pid: int, numbers: Mapping[int, int]) -> Job:
    """Return the job of the programs that one process has started with these numbers, by pid."""
    jobs = [make_lone_job(processes, one) for one in numbers]
    ranks = [replace(job.ranks[0], number=numbers[job.pid], by="arguments") for job in jobs]
    return replace(
        jobs[0],
        ranks=tuple(sorted(ranks, key=lambda rank: rank.number or 0)),
        launchers=(pid,),
        command=format_command(processes[pid].words),
        world=len(ranks),
        started=min(job.started for job in jobs),
    )


def join_jobs(jobs: Sequence[Job]) -> Job:
    """Return one job of all these, where a person says that they are one. Which ranks processes are
    that stood alone is not known then.
    """
    if len(jobs) == 1:
        return jobs[0]
    ranks = [r if r.by != "alone" else replace(r, number=None) for j in jobs for r in j.ranks]
    numbers = [r.number for r in ranks if r.number is not None]
    if len(numbers) != len(set(numbers)):
        ranks = [replace(r, number=None) for r in ranks]
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
        role = processes[pid].server
        if role is None or not role.is_spawned or not above.python:
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


@dataclass(frozen=True)
class FoundJobs:
    """The jobs, the latest first, and what else there is."""

    jobs: tuple[Job, ...]
    processes: ProcessTable
    others: int = 0  # Python processes of other users, whose variables may not be read


async def find_jobs(pids: Sequence[int] = (), limit: float = TABLE_LIMIT) -> FoundJobs:
    """Return the jobs that run here. With `pids` it is the one job that these processes belong to,
    whatever they are. All processes are read within `limit` seconds, or left out.

    Raises UsageError where there is no such process, or no Python in it and below it.
    """
    processes = read_processes(limit)
    pids = [process_of_thread(pid) or pid for pid in pids]
    for pid in pids:
        if pid not in processes or processes[pid].state in "ZX":
            raise make_no_such_process(pid, limit)
    pids = list(dict.fromkeys(find_watched(processes, pid) for pid in pids))
    spared = find_own_processes(processes) - set(pids)
    ranks = replace_supervisors(processes, ranks_from_environment(processes, spared), has_library)
    silent = find_candidates(processes, ranks, spared)
    lone = _find_lone_pythons(
        processes, {r.pid for r in ranks} | {r.launcher or 0 for r in ranks}, spared
    )
    asked = dict.fromkeys([*(one.pid for one in silent), *lone])
    looks = await look_for_ranks(list(asked)) if asked else {}
    unseen = [one.pid for one in silent if one.pid not in looks and _still_lives(one)]
    ranks += [
        replace(rank, launcher=find_driver(rank.pid))
        if rank.launcher is None and processes[rank.pid].actor
        else rank
        for rank in read_ranks_from_stacks(processes, looks, unseen)
    ]
    jobs = group_ranks(processes, ranks)
    jobs += find_idle_launchers(processes, jobs, spared)
    taken = {one for job in jobs for one in job.pids}
    taken |= processes_below(processes, taken)
    unread = {one for one in asked if one not in looks or not looks[one].threads}
    jobs += [_lone_job_of(processes, one, unread) for one in lone if one not in taken]
    others = sum(1 for one in processes.values() if one.python and one.environ is None)
    if pids:
        programs = [one for pid in pids for one in _list_programs(processes, pid)]
        looks |= await look_for_ranks([one for one in programs if one not in looks][:MOST])
        idle = {pid for pid, one in looks.items() if waits_for_requests(one)}
        found = (find_job_of_process(jobs, processes, pid, unread, idle) for pid in pids)
        jobs = [join_jobs(list(dict.fromkeys(found)))]
    return FoundJobs(tuple(jobs), processes, others)


def _still_lives(one: Process) -> bool:
    about = read_stat(one.pid)
    return about is not None and about.started == one.started and about.state not in "ZX"


def _find_lone_pythons(processes: ProcessTable, ranks: set[int], spared: set[int]) -> list[int]:
    """Return the Python processes that have loaded torch, or are drivers of Ray, and belong to no
    rank that is known; of those in one line the topmost.
    """
    known = ranks | processes_below(processes, ranks)
    found = []
    for one in processes.values():
        if (
            one.pid in known
            or one.pid in spared
            or not one.python
            or one.launcher
            or one.is_monitor
            or one.is_service
        ):
            continue
        if has_library(one):
            found.append(one.pid)
    inside = processes_below(processes, set(found))
    return [pid for pid in found if pid not in inside]


def _lone_job_of(processes: ProcessTable, pid: int, unread: Collection[int]) -> Job:
    """Return the job that a process is by itself. Where stacks of it, or of Pythons that it has
    started, cannot be read, it may as well be one rank of several.
    """
    return make_lone_job(
        processes, pid, not ({pid, *processes_below(processes, {pid})} & set(unread))
    )


def _list_programs(processes: ProcessTable, pid: int) -> list[int]:
    """Return the topmost programs of Python below a process, in their order; itself where it is
    one. None of them is ours: below `hangbisect run` it is its command.
    """
    inside = {pid, *processes_below(processes, {pid})}
    ours = {one for one in inside if processes[one].is_run or processes[one].is_own}
    pythons = {one for one in inside - ours if processes[one].python}
    above = {one: {other.pid for other in processes_above(processes, one)} for one in pythons}
    return sorted(one for one in pythons if not above[one] & pythons)


def _list_starters(processes: ProcessTable, pid: int) -> list[int]:
    """Return a process that may have started several programs; of `hangbisect run` its command."""
    if not processes[pid].is_run:
        return [pid]
    below = (one for one in processes.values() if one.ppid == pid)
    return [one.pid for one in below if not (one.is_run or one.is_own)]


def find_job_of_process(
    jobs: Sequence[Job],
    processes: ProcessTable,
    pid: int,
    unread: Collection[int],
    idle: Collection[int] = (),
) -> Job:
    """Return the job of a process: one of its own, of what stands above it, or of what is below.
    Programs that it has started side by side, each of which stands alone, are one; of several jobs
    below it one that does not only wait for requests (`idle`: who does), and that has more ranks.
    """
    line = [pid, *(one.pid for one in processes_above(processes, pid))]
    inside = processes_below(processes, {pid})
    found = [job for job in jobs if job.pids & {pid} or job.pids & inside]
    if found and pid not in found[0].pids and all(map(_stands_alone, found)):
        return join_jobs(found)
    if found:
        return min(found, key=lambda job: (job.pids <= {*idle}, -len(job.ranks)))
    for one in line:
        for job in jobs:
            if one in job.pids:
                return job
    for parent in _list_starters(processes, pid):
        for numbers, _ in number_programs_below(processes, parent):
            return _make_job_of_programs(processes, parent, numbers)
    programs = _list_programs(processes, pid)
    if not programs:
        raise _no_python(processes[pid])
    return _lone_job_of(processes, min(programs, key=lambda one: one in idle), unread)


def _stands_alone(job: Job) -> bool:
    return all(rank.by == "alone" for rank in job.ranks) and not job.launchers


def _no_python(one: Process) -> UsageError:
    user = "" if one.uid == os.geteuid() else f", of user {one.uid}"
    help = "`hangbisect` alone lists the jobs that run here."
    if one.name in SRUN.clients:
        help = "Its ranks are below slurmstepd, on each node: hangbisect attach --slurm JOBID"
    return UsageError(
        f"{one.pid} ({one.name}{user}) runs no Python, nor does anything that it started", help
    )


# Tells two nodes of Slurm's on one machine apart; a task whose environment was cleaned lacks it.
_OPTIONAL_VARIABLES = ("SLURMD_NODENAME",)


def select_jobs(jobs: Sequence[Job], processes: ProcessTable, only: Mapping[str, str]) -> list[Job]:
    """Return the jobs with those of their ranks that have these variables; with all of them if
    none are asked for.
    """
    if not only:
        return list(jobs)
    sure = {name: value for name, value in only.items() if name not in _OPTIONAL_VARIABLES}
    return _jobs_with_variables(jobs, processes, only) or [
        job
        for job in _jobs_with_variables(jobs, processes, sure)
        if not any(
            name in _environ_of(processes, r.pid) for r in job.ranks for name in _OPTIONAL_VARIABLES
        )
    ]


def _jobs_with_variables(
    jobs: Sequence[Job], processes: ProcessTable, only: Mapping[str, str]
) -> list[Job]:
    found = []
    for job in jobs:
        ranks = tuple(
            rank for rank in job.ranks if only.items() <= _environ_of(processes, rank.pid).items()
        )
        if ranks:
            whole = job.whole and len(ranks) == len(job.ranks)
            found.append(replace(job, ranks=ranks, whole=whole))
    return found


def _environ_of(processes: ProcessTable, pid: int) -> Mapping[str, str]:
    one = processes.get(pid)
    return (one.environ if one else None) or {}
