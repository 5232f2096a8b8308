"""Which processes are ranks, by what their launcher set in their environment. Pure.

A rank's number is inherited by all that it starts (DataLoader workers, wandb-core), and wrappers
in front of it have it too: of those with the same number in one line, the topmost Python is the
rank, but never a process of ours (`hangbisect run`, in front of each rank). Lightning's own launch
sets it only in the ranks that rank 0 starts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from ..base import launcher_env
from ..base.launcher_env import Ancestor
from ..base.launchers import DIALECTS, LAUNCHERS
from ..base.lazy_dataclass import dataclass
from .processes import Process, ProcessTable, processes_above

# Launchers that are a part of the job: slurmstepd belongs to Slurm, srun's ranks are below it.
STARTERS = frozenset(one.name for one in LAUNCHERS if not one.clients)
_LIGHTNING = "LOCAL_RANK"
_WORLD = "WORLD_SIZE"


@dataclass(frozen=True)
class Rank:
    """A process that is a rank. What is not known of it is None."""

    pid: int
    number: int | None
    local: int | None = None
    world: int | None = None
    launcher: int | None = None  # the process that started it
    dialect: str = ""  # whose variables have it: a key of launchers.DIALECTS, or "lightning"
    # How its number is known: "environment", "launch", "stack", "arguments"; "alone": it is no
    # other.
    by: str = ""
    master: str = ""  # the host where ranks meet, where its frames tell it
    twin: int | None = None  # the pid of another local rank that has its number
    keeper: int | None = None  # the pid of a program that has started it, and keeps it alive
    first: int | None = None  # of programs that no one process has started: the pid of number 0
    program: str = ""  # where its starter has started another job too, of another program


def ranks_from_environment(processes: ProcessTable, spared: Collection[int] = ()) -> list[Rank]:
    """Return the ranks that launchers' variables name, without what is `spared`."""
    shells = {pid for pid, one in processes.items() if _belongs_to_shell_task(processes, one)}
    claimed: dict[int, tuple[str, int]] = {}  # by pid: dialect and number
    for pid, one in processes.items():
        if pid not in spared and (claim := _find_claim(processes, one, pid in shells)) is not None:
            claimed[pid] = claim
    lines: dict[int, list[int]] = {}  # by the topmost process of the same number: all of them
    for pid in claimed:
        lines.setdefault(_topmost_with_claim(processes, claimed, pid), []).append(pid)
    hidden = _unreadable_ranks(processes, {*claimed, *spared})
    ranks: dict[int, Rank] = {}
    for top, line in lines.items():
        inside = next((one for one in processes_above(processes, top) if one.pid in hidden), None)
        if inside is not None:  # what a rank has started has its variables
            rank = _make_rank(processes[top], claimed[top], processes)
            ranks[inside.pid] = replace(rank, pid=inside.pid, launcher=inside.ppid)
        elif (found := _rank_in_line(processes, top, line)) is not None:
            ranks[found] = _make_rank(processes[found], claimed[found], processes)
    unknown = [
        Rank(pid, None, launcher=processes[pid].ppid, by="launch") for pid in hidden - ranks.keys()
    ]
    return [*ranks.values(), *_ranks_of_lightning(processes, {*claimed, *spared}), *unknown]


def replace_supervisors(
    processes: ProcessTable, ranks: Sequence[Rank], has_library: Callable[[Process], bool]
) -> list[Rank]:
    """Return the ranks; in place of one that has loaded nothing by which ranks meet, and has
    started one program of its number that has (`has_library`), that program: it is kept alive.
    """
    found = []
    for rank in ranks:
        if rank.by == "environment" and not has_library(processes[rank.pid]):
            started = [one for one in list_programs_below(processes, rank) if has_library(one)]
            if len(started) == 1:
                rank = replace(rank, pid=started[0].pid, keeper=rank.pid)
        found.append(rank)
    return found


def list_programs_below(processes: ProcessTable, rank: Rank) -> list[Process]:
    """Return the topmost programs of Python that the process of a rank, or what keeps it alive, has
    started, itself or by others (a shell), with its number; not what was forked, nor what
    multiprocessing has started.
    """
    variable = DIALECTS[rank.dialect].rank if rank.dialect in DIALECTS else ""
    above = processes[rank.keeper or rank.pid]
    number = (above.environ or {}).get(variable)
    found: list[Process] = []
    ahead = [above.pid]
    while ahead:
        parent = ahead.pop()
        for one in processes.values():
            if one.ppid != parent or one.is_monitor or one.is_resource_tracker:
                continue
            if not one.python:
                ahead.append(one.pid)
            elif (
                one.words != above.words
                and not one.is_of_multiprocessing
                and (one.environ or {}).get(variable) == number
            ):
                found.append(one)
    return sorted(found, key=lambda one: one.pid)


def _unreadable_ranks(processes: ProcessTable, taken: Collection[int]) -> set[int]:
    """Return the ranks whose variables may not be read (another user's; those of a program that may
    do more than who started it): what runs below a launcher of ranks.
    """
    return {
        one.pid
        for one in processes.values()
        if one.environ is None
        and one.state not in "ZX"
        and one.pid not in taken
        and one.launcher is None
        and (parent := processes.get(one.ppid)) is not None
        and parent.launcher in STARTERS
    }


def _find_claim(processes: ProcessTable, one: Process, is_shell: bool) -> tuple[str, int] | None:
    """Return the dialect and the number by which a process is a rank, or belongs to one."""
    environ = one.environ
    if (
        not environ
        or one.is_part_of_launcher
        or one.is_monitor
        or one.is_front
        or one.is_resource_tracker
        or _is_child_of_monitor(processes, one)
    ):
        return None
    named = launcher_env.claimed(environ, is_shell)
    if "SLURM_STEP_ID" not in environ and "srun" in named:
        named.remove("srun")  # a batch script, and what it starts: no step's task
    if not named:
        return None
    line = processes_above(processes, one.pid)
    ancestors = [Ancestor(a.environ or {}, a.words) for a in line] if len(named) > 1 else []
    dialect = launcher_env.starter(environ, named, ancestors)
    number = launcher_env.number(environ, DIALECTS[dialect].rank) if dialect else None
    return None if dialect is None or number is None else (dialect, number)


def _is_child_of_monitor(processes: ProcessTable, one: Process) -> bool:
    """Return whether a monitor of ours has started a process: it has the variables of the rank that
    started the monitor, and looks at ranks (py-spy).
    """
    parent = processes.get(one.ppid)
    return parent is not None and parent.is_monitor


def _belongs_to_shell_task(processes: ProcessTable, one: Process) -> bool:
    """Return whether Slurm's task that a process belongs to is a person's shell: salloc and `srun
    --pty` give one, and what is started in it is no task.
    """
    environ = one.environ or {}
    if (
        "SLURM_PROCID" not in environ
        or environ.get("SLURM_JOB_NAME") not in launcher_env.INTERACTIVE
    ):
        return False
    task = launcher_env.number(environ, "SLURM_TASK_PID")
    for other in (one, *processes_above(processes, one.pid)):
        if other.pid == task:
            options = all(word.startswith("-") and word != "-c" for word in other.words[1:])
            return options and Ancestor({}, other.words).is_shell
    return True


def _topmost_with_claim(
    processes: ProcessTable, claimed: dict[int, tuple[str, int]], pid: int
) -> int:
    top = pid
    for one in processes_above(processes, pid):
        if claimed.get(one.pid) == claimed[pid]:
            top = one.pid
        elif one.launcher is not None:
            break
    return top


def _rank_in_line(processes: ProcessTable, top: int, line: Sequence[int]) -> int | None:
    """Return the rank of those with its number in one line: the topmost Python; where none runs
    yet, what its launcher started; None for what a rank that is gone has left.
    """
    pythons = [pid for pid in line if processes[pid].python]
    if pythons:
        return min(pythons, key=lambda pid: (len(list(processes_above(processes, pid))), pid))
    above_it = processes.get(processes[top].ppid)
    if above_it is None or (above_it.pid == 1 and above_it.launcher is None):
        return None
    return top


def _make_rank(one: Process, claim: tuple[str, int], processes: ProcessTable) -> Rank:
    dialect, number = claim
    environ = one.environ or {}
    names = DIALECTS[dialect]
    return Rank(
        pid=one.pid,
        number=number,
        local=launcher_env.number(environ, names.local_rank),
        world=launcher_env.number(environ, names.world_size),
        launcher=_find_launcher(processes, one, names.rank),
        dialect=dialect,
        by="environment",
    )


def _find_launcher(processes: ProcessTable, one: Process, variable: str) -> int | None:
    """Return the first process above without this rank's own number: between them may stand
    wrappers, which have it. None for init.
    """
    mine = (one.environ or {}).get(variable)
    for other in processes_above(processes, one.pid):
        if other.launcher is not None or (other.environ or {}).get(variable) != mine:
            return other.pid if other.pid > 1 or other.launcher else None
    return None


# ---- Lightning's own launch ---------------------------------------------------------------------


def _ranks_of_lightning(processes: ProcessTable, taken: Collection[int]) -> list[Rank]:
    """Return the ranks of Lightning's own launch: rank 0 has started the others with its own
    command line, and sets their variables only in them (subprocess_script.py).
    """
    started: dict[int, list[Process]] = {}
    for one in processes.values():
        parent = processes.get(one.ppid)
        if one.pid in taken or parent is None or not parent.python or parent.launcher:
            continue
        if _is_started_by_rank_0(one, parent):
            started.setdefault(parent.pid, []).append(one)
    return [
        rank
        for pid, children in started.items()
        if pid not in taken
        for rank in _make_lightning_ranks(processes[pid], children)
    ]


def _is_started_by_rank_0(one: Process, parent: Process) -> bool:
    local = launcher_env.number(one.environ or {}, _LIGHTNING)
    return bool(
        one.python
        and local
        and _same_program(parent.words, one.words)
        and launcher_env.number(one.environ or {}, _WORLD)
        and _LIGHTNING not in (parent.environ or {})
    )


def _same_program(first: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether Lightning starts `first` again as `other`: by the whole path, without the
    interpreter's own options; with Hydra some words follow.
    """
    if len(other) < 2:
        return False
    script = os.path.basename(other[1])
    for at, word in enumerate(first[1:], 1):
        rest = first[at + 1 :]
        if os.path.basename(word) == script and tuple(other[2 : 2 + len(rest)]) == tuple(rest):
            return True
    return False


def _make_lightning_ranks(first: Process, children: Iterable[Process]) -> list[Rank]:
    """Return rank 0 and the ranks that it started. Each node has as many: on a further node they
    are numbered from its own number on (LightningEnvironment), unless some of them have ended.
    """
    ranks, started = [], list(children)
    for one in started:
        environ = one.environ or {}
        local, world = (
            launcher_env.number(environ, _LIGHTNING),
            launcher_env.number(environ, _WORLD),
        )
        node, here = launcher_env.number(environ, "NODE_RANK") or 0, len(started) + 1
        is_known = local is not None and (not node or (world or 0) % here == 0)
        number = node * here + local if is_known and local is not None else None
        ranks.append(Rank(one.pid, number, local, world, first.pid, "lightning", "launch"))
    lead = ranks[0]
    number = lead.number - (lead.local or 0) if lead.number is not None else None
    return [Rank(first.pid, number, 0, lead.world, first.pid, "lightning", "launch"), *ranks]
