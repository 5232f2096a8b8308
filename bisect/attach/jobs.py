"""Which ranks make one job. Pure.

Ranks below the same launcher do, and ranks of launchers with the same run: torchelastic's run id,
the address where ranks meet, a step of Slurm's. Two ranks with the same number are never of one
job: what an earlier start has left behind meets at the same default port.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..rank.place import FOLDER_VARIABLE
from .processes import Process, Table, above, below
from .ranks import STARTERS, Rank

_TORCHRUNS_DEFAULT = "none"  # torchrun's --rdzv-id
_RUN_DIR = "HANGBISECT_RUN_DIR"
_OURS = ("bisect", "hangbisect")  # as a module or a folder
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
    def pids(self) -> frozenset[int]:
        """The processes of ranks and of what started them."""
        return frozenset({*(rank.pid for rank in self.ranks), *self.launchers})

    @property
    def has_one_command(self) -> bool:
        """Its command starts all of its ranks: it is not that of one rank among several, which
        something that is not seen has started, nor the kernel of a notebook.
        """
        one_by_one = not self.launchers and all(r.by == "environment" for r in self.ranks)
        return self.notebook is None and not (one_by_one and self.world > 1)

    @property
    def pid(self) -> int:
        """The process to name it by: what started it, else its first rank."""
        return self.launchers[0] if self.launchers else self.ranks[0].pid


def grouped(processes: Table, ranks: Sequence[Rank]) -> list[Job]:
    """Return the jobs that these ranks make, the latest first."""
    groups: list[list[Rank]] = []
    for part in _by_launcher(processes, ranks):
        same = next((g for g in groups if _is_one(processes, g, part)), None)
        if same is None:
            groups.append(part)
        else:
            same += part
    jobs = [_job(processes, group) for group in groups]
    return sorted(jobs, key=lambda job: -job.started)


def without_ranks(processes: Table, jobs: Iterable[Job], spared: set[int]) -> list[Job]:
    """Return the launchers that have started nobody, as jobs without ranks."""
    busy = {pid for job in jobs for pid in job.pids}
    found = []
    for one in processes.values():
        idle = one.launcher in STARTERS and one.pid not in busy and one.pid not in spared
        inside = any(other.launcher in STARTERS for other in above(processes, one.pid))
        if idle and not inside and not below(processes, {one.pid}) & busy:
            found.append(_of_launcher(processes, one))
    return found


def alone(processes: Table, pid: int, sure: bool = True) -> Job:
    """Return the job that one process is by itself; not `sure`, it may be one of several ranks, or
    have started them.
    """
    one = processes[pid]
    return Job(
        ranks=(Rank(pid, 0 if sure else None, 0, 1, None, "", "alone"),),
        command=typed(one.words),
        world=1,
        notebook=pid if one.notebook else None,
        uid=one.uid,
        started=one.started,
    )


def joined(jobs: Sequence[Job]) -> Job:
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


def typed(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command as one types it: console scripts run as `python /path/to/torchrun ...`."""
    if not words:
        return ()
    script = os.path.basename(words[1]) if len(words) > 1 else ""
    rest = words[1:] if script in STARTERS else words
    return (os.path.basename(rest[0]), *rest[1:])


# ---- groups -------------------------------------------------------------------------------------


def _by_launcher(processes: Table, ranks: Sequence[Rank]) -> list[list[Rank]]:
    """Return the ranks by what started them; of two with the same number the one that is older, or
    else the Python, is the rank, and the other no rank at all.
    """
    found: dict[object, list[Rank]] = {}
    for rank in sorted(ranks, key=lambda r: (processes[r.pid].started, r.pid)):
        key: object = rank.launcher or _runs(processes, rank)[:1] or _beside(processes, rank)
        part = found.setdefault(key, [])
        if rank.number is None or all(r.number != rank.number for r in part):
            part.append(rank)
    return list(found.values())


def _beside(processes: Table, rank: Rank) -> object:
    """Return what ranks that nothing names have in common: the shell that started them."""
    return ("below", processes[rank.pid].ppid) if rank.by == "stack" else ("alone", rank.pid)


def _is_one(processes: Table, group: Sequence[Rank], part: Sequence[Rank]) -> bool:
    numbers = {rank.number for rank in group} & {rank.number for rank in part}
    runs = {run for rank in group for run in _runs(processes, rank)}
    worlds = {rank.world for rank in (*group, *part)}
    uids = {processes[rank.pid].uid for rank in (*group, *part)}
    same = any(run in runs for rank in part for run in _runs(processes, rank))
    return same and not numbers and len(worlds) == 1 and len(uids) == 1


def _runs(processes: Table, rank: Rank) -> tuple[tuple[str, ...], ...]:
    """Return what names the run that a rank belongs to, the surest first."""
    return _runs_in(processes[rank.pid].environ or {})


def _runs_in(environ: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    names: list[tuple[str, ...]] = []
    run = environ.get("TORCHELASTIC_RUN_ID", "")
    if run and run != _TORCHRUNS_DEFAULT:
        names.append(("run", run))
    if environ.get("SLURM_JOB_ID") and environ.get("SLURM_STEP_ID"):
        names.append(("slurm", environ["SLURM_JOB_ID"], environ["SLURM_STEP_ID"]))
    if environ.get("MASTER_ADDR") and environ.get("MASTER_PORT"):
        names.append(("master", environ["MASTER_ADDR"], environ["MASTER_PORT"]))
    return tuple(names)


# ---- a job --------------------------------------------------------------------------------------


def _job(processes: Table, group: Sequence[Rank]) -> Job:
    ranks = tuple(sorted(group, key=lambda r: (r.number is None, r.number or 0, r.pid)))
    launchers = tuple(
        dict.fromkeys(
            rank.launcher
            for rank in ranks
            if rank.launcher is not None and _belongs(processes, rank)
        )
    )
    first = processes[ranks[0].pid]
    world = max((rank.world or 0 for rank in ranks), default=0)
    return Job(
        ranks=ranks,
        launchers=launchers,
        command=_command(processes, ranks, launchers),
        world=max(world, len(ranks)),
        whole=_is_whole(processes, ranks, world),
        notebook=_notebook(processes, ranks),
        watched=_watched(processes, ranks),
        uid=first.uid,
        started=min(processes[rank.pid].started for rank in ranks),
    )


def _belongs(processes: Table, rank: Rank) -> bool:
    """Return whether what started a rank is a part of the job: a launcher, or the script that made
    it; not a shell, slurmstepd, or the kernel of a notebook.
    """
    one = processes.get(rank.launcher or 0)
    if one is None or one.notebook or one.pid == rank.pid:
        return False
    if one.launcher is not None:  # a container's first process, perhaps
        return one.launcher in STARTERS
    return rank.by == "stack" and one.python and one.pid != 1


def _command(processes: Table, ranks: Sequence[Rank], launchers: Sequence[int]) -> tuple[str, ...]:
    if not launchers:
        return typed(processes[ranks[0].pid].words)
    outermost = processes[launchers[0]]
    for one in above(processes, outermost.pid):
        if one.launcher in STARTERS:  # DeepSpeed's starts another one, which starts the ranks
            outermost = one
    return typed(outermost.words)


def _is_whole(processes: Table, ranks: Sequence[Rank], world: int) -> bool:
    """Return whether no rank of the job is to be on another machine, as far as its variables tell:
    a group of one node, as many ranks on this one as there are, or ranks that meet at home.
    """
    if world <= len(ranks):
        return True
    environ = processes[ranks[0].pid].environ or {}
    if environ.get("GROUP_WORLD_SIZE"):
        return environ["GROUP_WORLD_SIZE"] == "1"
    if environ.get("SLURM_NNODES") and ranks[0].dialect == "srun":
        return environ["SLURM_NNODES"] == "1"
    if environ.get("LOCAL_WORLD_SIZE") or environ.get("OMPI_COMM_WORLD_LOCAL_SIZE"):
        local = environ.get("LOCAL_WORLD_SIZE") or environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")
        return local == str(world)
    return (environ.get("MASTER_ADDR") or ranks[0].master).startswith(_LOOPBACK)


def _notebook(processes: Table, ranks: Sequence[Rank]) -> int | None:
    for rank in ranks:
        line = above(processes, rank.pid)
        if not (processes[rank.pid].notebook or any(one.notebook for one in line)):
            return None
    first = [one for one in above(processes, ranks[0].pid) if one.notebook]
    return first[-1].pid if first else ranks[0].pid


def _watched(processes: Table, ranks: Sequence[Rank]) -> str | None:
    """Return the run folder of a watch of ours, "" where it is not known, None without a watch. A
    rank sets the watch's variables in itself, where nobody sees them: its monitor has those of its
    launcher.
    """
    runs = {run for rank in ranks for run in _runs(processes, rank)}
    watched = False
    for rank in ranks:
        one = processes[rank.pid]
        environ = one.environ or {}
        if folder := environ.get(_RUN_DIR) or _option(one.words, "--run-dir"):
            return folder
        watched |= FOLDER_VARIABLE in environ
    return "" if watched or any(_names(m) & runs for m in _monitors(processes)) else None


def _monitors(processes: Table) -> list[Process]:
    return [one for one in processes.values() if one.ours]


def _names(one: Process) -> set[tuple[str, ...]]:
    return set(_runs_in(one.environ or {}))


def _option(words: Sequence[str], flag: str) -> str:
    """Return the value of an option of ours in a rank's own command line, "" if it has none."""
    if not any(os.path.basename(word) in _OURS for word in words[:4]):
        return ""
    for at, word in enumerate(words):
        name, sign, value = word.partition("=")
        if name == flag:
            return value if sign else "".join(words[at + 1 : at + 2])
    return ""


def _of_launcher(processes: Table, one: Process) -> Job:
    return Job(
        ranks=(),
        launchers=(one.pid,),
        command=typed(one.words),
        uid=one.uid,
        started=one.started,
    )
