"""Which processes are ranks, by what their launcher set in their environment. Pure.

A rank's number is inherited by all that it starts (DataLoader workers, wandb-core), and wrappers
in front of it have it too: of those with the same number in one line, the topmost Python is the
rank, but never a process of ours (`hangbisect run`, in front of each rank). Lightning's own launch
sets it only in the ranks that rank 0 starts.

`torch.multiprocessing.spawn`, notebooks (which fork) and scripts that start their ranks themselves
set no variable that can be seen from outside. What started such a process has its number among its
locals, so has whoever meets the others, and so may the script's own functions. A number that none
of them tells is unknown; it is never made up.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ..base import launcher_env
from ..base.command_words import SPAWNED, has_title, program
from ..base.launcher_env import Ancestor
from ..base.launchers import DIALECTS, LAUNCHERS
from ..base.lazy_dataclass import dataclass
from ..base.library_functions import Role, find_role
from ..base.process_facts import Look
from ..base.process_roles import number_ranks
from ..diagnosis.process.actor_waits import put_job_thread_first
from ..diagnosis.process.blocked_syscalls import CHILD_WAIT_CALLS, SLEEP_CALLS, list_awaited_pids
from ..diagnosis.process.process_snapshot import main_kernel
from ..dumps.facts_in_stack import RankLocals, read_rank_locals
from ..evidence.look import Target, take_looks
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
    # How its number is known: "environment", "launch", "stack"; "alone": it is no other.
    by: str = ""
    master: str = ""  # the host where ranks meet, where its frames tell it
    twin: int | None = None  # the pid of another local rank that has its number
    keeper: int | None = None  # the pid of a program that has started it, and keeps it alive
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
    """Return rank 0 and the ranks that it started. On a further node the numbers of all ranks are
    not known: what a node has of them stands nowhere.
    """
    ranks = []
    for one in children:
        environ = one.environ or {}
        local, world = (
            launcher_env.number(environ, _LIGHTNING),
            launcher_env.number(environ, _WORLD),
        )
        is_first_node = environ.get("NODE_RANK", "0") == "0"
        number = local if is_first_node else None
        ranks.append(Rank(one.pid, number, local, world, first.pid, "lightning", "launch"))
    lead = ranks[0]
    number = None if lead.number is None else 0
    return [Rank(first.pid, number, 0, lead.world, first.pid, "lightning", "launch"), *ranks]


MOST = 64  # processes that are looked at for this
LIMIT = 2.0  # seconds for all of them


def find_candidates(
    processes: ProcessTable, ranks: Sequence[Rank], spared: set[int]
) -> list[Process]:
    """Return the Python processes that multiprocessing may have started as ranks: children of a
    Python that is no rank and belongs to none; and the actors of Ray.
    """
    known = {rank.pid for rank in ranks}
    found = []
    for one in processes.values():
        parent = processes.get(one.ppid)
        if one.pid in spared or not one.python or parent is None:
            continue
        if (one.actor or one.is_rank_of_server) and not _belongs_to(processes, one, known):
            found.append(one)
        if not parent.python:
            continue
        if (
            one.is_monitor
            or one.is_front
            or one.is_service
            or parent.is_monitor
            or parent.launcher
            or _belongs_to(processes, one, known)
        ):
            continue
        if _is_started_by(one, parent):
            found.append(one)
    by_pid = {one.pid: one for one in found}
    return [by_pid[pid] for pid in sorted(by_pid)][:MOST]


def _is_started_by(one: Process, parent: Process) -> bool:
    """Return whether multiprocessing in one process may have started another: no other program. One
    that has given itself a title has no words of a command left (setproctitle).
    """
    return SPAWNED in one.words or one.words == parent.words or has_title(one.words)


def _belongs_to(processes: ProcessTable, one: Process, known: set[int]) -> bool:
    return any(each.pid in known for each in (one, *processes_above(processes, one.pid)))


async def look_for_ranks(pids: Sequence[int]) -> dict[int, Look]:
    """Return a look at each of these processes."""
    looks = await take_looks([Target(pid, "rank", python=True) for pid in pids], limit=LIMIT)
    return {one.pid: put_job_thread_first(one) for one in looks if one.state}


def read_ranks_from_stacks(
    processes: ProcessTable, looks: Mapping[int, Look], unseen: Iterable[int] = ()
) -> list[Rank]:
    """Return the ranks among these processes: where the stack of one tells its number, those that
    the same process has started are ranks as well, and that of one that does not tell, or was not
    seen in time, is unknown. What a rank has forked has its stack, and is none.
    """
    families: dict[_Family, dict[int, RankLocals]] = {}
    found = {pid: read_rank_locals(one) for pid, one in looks.items()}
    found |= {pid: RankLocals() for pid in unseen if pid not in found}
    for pid, claim in found.items():
        if not claim.worker and pid in processes:
            one = processes[pid]
            if one.server is not None and not one.is_rank_of_server:
                continue
            key = one.ppid, one.actor.partition(".")[0], _name_program(processes, one)
            families.setdefault(key, {})[pid] = claim
    families = _join_programs(families)
    telling = {
        family: members
        for family, members in families.items()
        if any(t.any_number is not None for t in members.values())
        or (
            (family[1] or any(has_title(processes[pid].words) for pid in members))
            and any(pid in looks and _meets_ranks(looks[pid]) for pid in members)
        )
        or any(processes[pid].is_rank_of_server for pid in members)
    }
    telling = {
        family: members
        for family, members in telling.items()
        if not _has_started_the_ranks(looks, members, telling)
    }
    ranks = {pid for members in telling.values() for pid in members}
    return [
        rank
        for (parent, actor, name), members in telling.items()
        if parent not in ranks and not _belongs_to_any(processes, parent, ranks)
        for rank in _family(processes, parent, members, actor, name)
    ]


# The process that started its members, their class as actors of Ray, and their program where that
# process is none of the job's.
_Family = tuple[int, str, str]


def _name_program(processes: ProcessTable, one: Process) -> str:
    """Return by what programs of a shell, or kernels of a notebook's server, are told apart: the
    script, or the kernel itself; "" for what is started by a program of the job's.
    """
    parent = processes.get(one.ppid)
    if one.notebook:
        return str(one.pid)
    if one.actor or one.server is not None or has_title(one.words):
        return ""
    if parent is None or _is_started_by(one, parent):
        return ""
    at = program(one.words)
    return one.words[at] if at is not None else ""


def _join_programs(
    families: Mapping[_Family, Mapping[int, RankLocals]],
) -> dict[_Family, dict[int, RankLocals]]:
    """Return the families; programs that one process has started side by side are one family, as a
    trainer and its engine are, unless their numbers, worlds or meeting places contradict that.
    """
    joined: dict[_Family, dict[int, RankLocals]] = {}
    for (parent, actor, _), members in families.items():
        joined.setdefault((parent, actor, ""), {}).update(members)
    apart = {key for key, members in joined.items() if not _may_be_one_job(members)}
    found = {key: members for key, members in joined.items() if key not in apart}
    return found | {key: {**m} for key, m in families.items() if (*key[:2], "") in apart}


def _may_be_one_job(members: Mapping[int, RankLocals]) -> bool:
    numbers = [t.number for t in members.values() if t.number is not None]
    worlds = {t.world for t in members.values() if t.world is not None}
    masters = {t.master for t in members.values() if t.master}
    return len(numbers) == len(set(numbers)) and len(worlds) < 2 and len(masters) < 2


def _has_started_the_ranks(
    looks: Mapping[int, Look],
    members: Mapping[int, RankLocals],
    telling: Mapping[_Family, Mapping[int, RankLocals]],
) -> bool:
    """Return whether a process that stands alone does nothing but wait for several that it has
    started, for their end or for what one of them is to send, and that tell different numbers:
    these are the ranks. A loop over them has left the last number among its locals.
    """
    if len(members) > 1:
        return False
    (pid,) = members
    task = main_kernel(looks[pid]) if pid in looks else None
    call = task.syscall if task is not None else None
    below = [one for family, one in telling.items() if family[0] == pid]
    pids = {child for one in below for child in one}
    waits = call is not None and call.name in CHILD_WAIT_CALLS | SLEEP_CALLS
    if not waits and not (pid in looks and list_awaited_pids(looks[pid]) & pids):
        return False
    numbers = [told.any_number for one in below for told in one.values()]
    return len(numbers) > 1 and len({*numbers} - {None}) == len(numbers)


def _meets_ranks(one: Look) -> bool:
    """Return whether a thread of a process waits for the other ranks of a group."""
    roles = (Role.MAKES_GROUP, Role.ASKS_STORE, Role.RUNS_COLLECTIVE)
    return any(find_role(thread.frames, role) for thread in one.threads for role in roles)


def find_driver(processes: ProcessTable, pid: int) -> int | None:
    """Return the driver of an actor of Ray: the script that has started its cluster, None where it
    is not above it, because the cluster was there before.
    """
    for one in processes_above(processes, pid):
        if one.python and not one.is_service and one.launcher is None:
            return one.pid
    return None


def _belongs_to_any(processes: ProcessTable, pid: int, ranks: Collection[int]) -> bool:
    return any(one.pid in ranks for one in processes_above(processes, pid))


def _family(
    processes: ProcessTable,
    parent: int,
    members: Mapping[int, RankLocals],
    actor: str = "",
    name: str = "",
) -> list[Rank]:
    """Return the ranks that one process has started; of Ray's the actors of one class. The numbers
    on a node are those of the whole job where it has no other node; where all but one are known,
    that one has the number that is left.
    """
    if any(processes[pid].is_rank_of_server for pid in members):
        return _ranks_of_server(processes, parent, members)
    worlds = {t.world for t in members.values() if t.world is not None}
    world = worlds.pop() if len(worlds) == 1 else None
    alone = world in (None, len(members))
    ranks = []
    for pid, t in members.items():
        number = t.number if t.number is not None else (t.local if alone else None)
        size = world or (len(members) if number is not None else None)
        # What started another program (a shell, a test, a scheduler) is no part of the job.
        is_own = parent in processes and _is_started_by(processes[pid], processes[parent])
        launcher = parent if is_own else None
        if actor:
            launcher = find_driver(processes, parent)
        ranks.append(
            Rank(pid, number, t.local, size, launcher, "", "stack", t.master, program=name)
        )
    numbers = [rank.number for rank in ranks if rank.number is not None]
    if len(numbers) != len(set(numbers)):  # they mean something else
        return [replace(rank, number=None, world=world) for rank in ranks]
    left = set(range(world or 0)) - set(numbers)
    if world == len(ranks) and len(left) == 1:
        ranks = [one if one.number is not None else replace(one, number=min(left)) for one in ranks]
    return ranks


def _ranks_of_server(
    processes: ProcessTable, parent: int, members: Mapping[int, RankLocals]
) -> list[Rank]:
    """Return the ranks of an inference server, numbered by their titles. One that has none yet has
    the number that is left; one that died is counted, and is a zombie of the same name.
    """
    roles = {pid: role for pid in members if (role := processes[pid].server) is not None}
    numbers = number_ranks(roles)
    names = {processes[pid].name for pid in roles}
    dead = [one for one in processes.values() if one.ppid == parent and one.state == "Z"]
    size = len(members) + sum(one.name in names for one in dead)
    told = {t.world for t in members.values() if t.world is not None}
    world = max([size, *told, *(number + 1 for number in numbers.values())])
    masters = {pid: t.master for pid, t in members.items()}
    left = sorted(set(range(world)) - set(numbers.values()))
    unnamed = [pid for pid in members if pid not in numbers]
    if len(left) == len(unnamed):
        numbers |= dict(zip(sorted(unnamed), left, strict=True))
    return [
        Rank(pid, numbers.get(pid), numbers.get(pid), world, parent, "", "stack", masters[pid])
        for pid in members
    ]
