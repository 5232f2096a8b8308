"""The jobs that run on this machine, and which of them is meant: that of a process, of what stands
above it, or of what is below; with variables that its ranks have.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ..base.errors import UsageError
from ..base.launchers import SRUN
from ..base.lazy_dataclass import dataclass
from ..base.proc import process_of_thread, read_stat
from ..diagnosis.proof_of_hang import waits_for_requests
from ..evidence.ray_cluster import find_driver
from .jobs import (
    Job,
    find_idle_launchers,
    group_ranks,
    join_jobs,
    make_job_of_programs,
    make_lone_job,
)
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
from .ranks import ranks_from_environment, replace_supervisors
from .ranks_by_stack import (
    MOST,
    find_candidates,
    look_for_ranks,
    number_programs_below,
    read_ranks_from_stacks,
    waits_for_what_it_started,
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
    starters = {rank.launcher for rank in ranks if rank.launcher}  # of an orphan there is none
    lone = _find_lone_pythons(processes, {rank.pid for rank in ranks} | starters, spared)
    asked = dict.fromkeys([*(one.pid for one in silent), *lone])
    looks = await look_for_ranks(list(asked)) if asked else {}
    late = [pid for pid in asked if pid not in looks or not looks[pid].threads]
    if late:  # a machine that has much else to do
        looks |= await look_for_ranks([pid for pid in late if _still_lives(processes[pid])])
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
        at_work = {pid for pid, one in looks.items() if not waits_for_what_it_started(one)}
        found = (find_job_of_process(jobs, processes, pid, unread, idle, at_work) for pid in pids)
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
    at_work: Collection[int] = (),
) -> Job:
    """Return the job of a process: one of its own, of what stands above it, or of what is below.
    Programs that it has started side by side, each of which stands alone, are one, with the numbers
    among their arguments if it does not do more than wait for them (`at_work`: who does); of
    several jobs below it one that does not only wait for requests (`idle`: who does), and that has
    more ranks.
    """
    line = [pid, *(one.pid for one in processes_above(processes, pid))]
    inside = processes_below(processes, {pid})
    found = [job for job in jobs if job.pids & {pid} or job.pids & inside]
    is_of_none = not any(job.pids & {*line} for job in jobs)
    if is_of_none and all(map(_stands_alone, found)):
        starters = [one for one in _list_starters(processes, pid) if one not in at_work]
        numbered = ((one, n) for one in starters for n, _ in number_programs_below(processes, one))
        for starter, numbers in numbered:
            return make_job_of_programs(processes, starter, numbers)
    if found and pid not in found[0].pids and all(map(_stands_alone, found)):
        return join_jobs(found)
    if found:
        return min(found, key=lambda job: (job.pids <= {*idle}, -len(job.ranks)))
    for one in line:
        for job in jobs:
            if one in job.pids:
                return job
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
