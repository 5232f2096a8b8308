"""Of the jobs on a machine, the one whose ranks have certain variables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..jobs import Job
from ..processes import Table

# Tells two nodes of Slurm's on one machine apart; a task whose environment was cleaned lacks it.
_PERHAPS = ("SLURMD_NODENAME",)


def having(jobs: Sequence[Job], processes: Table, only: Mapping[str, str]) -> list[Job]:
    """Return the jobs with those of their ranks that have these variables; with all of them if
    none are asked for.
    """
    if not only:
        return list(jobs)
    sure = {name: value for name, value in only.items() if name not in _PERHAPS}
    return _having(jobs, processes, only) or [
        job
        for job in _having(jobs, processes, sure)
        if not any(name in _environ(processes, r.pid) for r in job.ranks for name in _PERHAPS)
    ]


def _having(jobs: Sequence[Job], processes: Table, only: Mapping[str, str]) -> list[Job]:
    found = []
    for job in jobs:
        ranks = tuple(
            rank for rank in job.ranks if only.items() <= _environ(processes, rank.pid).items()
        )
        if ranks:
            whole = job.whole and len(ranks) == len(job.ranks)
            found.append(replace(job, ranks=ranks, whole=whole))
    return found


def _environ(processes: Table, pid: int) -> Mapping[str, str]:
    one = processes.get(pid)
    return (one.environ if one else None) or {}
