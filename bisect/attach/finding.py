"""Find the jobs of this machine, or the one that a process belongs to."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..errors import UsageError
from ..evidence.aside import within
from .jobs import Job, alone, grouped, joined, without_ranks
from .processes import Process, Table, above, below, ourselves, table
from .ranks import from_environment
from .silent import candidates, from_stacks, look_for_ranks

_MAPS_LIMIT = 0.2  # seconds for the list of what a process has mapped
_TORCH = b"libtorch"
_OF_SLURM = ("srun", "sbatch", "salloc")


@dataclass(frozen=True)
class Found:
    """The jobs, the latest first, and what else there is."""

    jobs: tuple[Job, ...]
    processes: Table
    others: int = 0  # Python processes of other users, whose variables may not be read


async def find(pids: Sequence[int] = ()) -> Found:
    """Return the jobs that run here. With `pids` it is the one job that these processes belong to,
    whatever they are.

    Raises UsageError where there is no such process, or no Python in it and below it.
    """
    processes = table()
    for pid in pids:
        if pid not in processes or processes[pid].state in "ZX":
            raise _gone(pid)
    spared = ourselves(processes) - set(pids)
    ranks = from_environment(processes, spared)
    silent = candidates(processes, ranks, spared)
    lone = _lone(processes, {r.pid for r in ranks} | {r.launcher or 0 for r in ranks}, spared)
    asked = dict.fromkeys([*(one.pid for one in silent), *lone])
    looks = await look_for_ranks(list(asked)) if asked else {}
    ranks += from_stacks(processes, looks)
    jobs = grouped(processes, ranks)
    jobs += without_ranks(processes, jobs, spared)
    taken = {one for job in jobs for one in job.pids}
    taken |= below(processes, taken)
    unread = {one for one in asked if one not in looks or not looks[one].threads}
    jobs += [_alone(processes, one, unread) for one in lone if one not in taken]
    others = sum(1 for one in processes.values() if one.python and one.environ is None)
    if pids:
        jobs = [joined(list(dict.fromkeys(_of(jobs, processes, pid, unread) for pid in pids)))]
    return Found(tuple(jobs), processes, others)


def _lone(processes: Table, ranks: set[int], spared: set[int]) -> list[int]:
    """Return the Python processes that have loaded torch, and belong to no rank that is known; of
    those in one line the topmost.
    """
    known = ranks | below(processes, ranks)
    found = []
    for one in processes.values():
        if one.pid in known or one.pid in spared or not one.python or one.launcher or one.ours:
            continue
        if _has_torch(one):
            found.append(one.pid)
    inside = below(processes, set(found))
    return [pid for pid in found if pid not in inside]


def _has_torch(one: Process) -> bool:
    if one.state in "ZXD":  # to read what it has mapped might take for ever
        return False
    try:
        return _TORCH in within(_MAPS_LIMIT, _maps, one.pid)
    except (OSError, TimeoutError):
        return False


def _maps(pid: int) -> bytes:
    with open(f"/proc/{pid}/maps", "rb") as file:
        return file.read()


def _alone(processes: Table, pid: int, unread: Collection[int]) -> Job:
    """Return the job that a process is by itself. Where stacks of it, or of Pythons that it has
    started, cannot be read, it may as well be one rank of several.
    """
    return alone(processes, pid, not ({pid, *below(processes, {pid})} & set(unread)))


def _of(jobs: Sequence[Job], processes: Table, pid: int, unread: Collection[int]) -> Job:
    """Return the job of a process: one of its own, of what stands above it, or of what is below."""
    line = [pid, *(one.pid for one in above(processes, pid))]
    inside = below(processes, {pid})
    for job in jobs:
        if job.pids & {pid} or job.pids & inside:
            return job
    for one in line:
        for job in jobs:
            if one in job.pids:
                return job
    pythons = [p for p in (pid, *sorted(inside)) if processes[p].python]
    if not pythons:
        raise _no_python(processes[pid])
    return _alone(processes, pythons[0], unread)


def _gone(pid: int) -> UsageError:
    return UsageError(
        f"there is no process {pid} here (it has ended, or belongs to another machine or "
        "container)",
        "`hangbisect` alone lists the jobs that run here.",
    )


def _no_python(one: Process) -> UsageError:
    user = "" if one.uid == os.geteuid() else f", of user {one.uid}"
    help = "`hangbisect` alone lists the jobs that run here."
    if one.name in _OF_SLURM:
        help = "Its ranks are below slurmstepd, on each node: hangbisect attach --slurm JOBID"
    return UsageError(
        f"{one.pid} ({one.name}{user}) runs no Python, nor does anything that it started", help
    )
