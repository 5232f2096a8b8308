"""Ranks that never say hello: looked for among the launcher's children, and among the processes
that a program of the user's own has started (monitor/started_ranks.py has their numbers).

Ranks of one group may be of several programs, each with a monitor of its own (a trainer, and the
workers of its engine): a rank that waits for the world finds the others below it, and rank 0 at the
store, which that one serves (torch/distributed/rendezvous.py, _create_c10d_store).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from ..base.command_words import has_launcher, has_title
from ..base.deadline import within
from ..base.launcher_env import number
from ..base.launchers import DIALECTS, RANK_VARIABLES
from ..base.place import find_place
from ..base.proc import read_stat, walk_up
from ..base.process_facts import Look
from ..base.process_roles import find_actor
from ..base.rank_facts import RankFacts
from ..base.rank_history import SILENT
from ..diagnosis.process.blocked_syscalls import (
    list_awaited_pids,
    list_connected_pids,
    read_wanted_child,
)
from ..diagnosis.process.process_snapshot import merge_looks
from ..diagnosis.process.public_calls import find_group_wait
from ..diagnosis.rendezvous_claims import read_group_values
from ..evidence.process import exit_code, family, variables_of, words_of
from .job_activity import Stillness
from .started_ranks import kind_by_title

if TYPE_CHECKING:
    from ..base.process_facts import Look
    from ..base.rank_facts import RankFacts
    from ..base.rank_state import RankState
    from .job import Job


SEARCH_EVERY = 1.0  # seconds
_DEEPEST = 8  # processes above a rank that are looked at


class MissingRanks:
    """The ranks that should be here and never said hello."""

    def __init__(self, job: Job) -> None:
        """Nothing is looked for before a rank is late."""
        self._job = job
        self._searched = 0.0
        self._stillness: dict[int, Stillness] = {}
        self._stirred: dict[int, float] = {}

    def is_due(self, now: float) -> bool:
        """Return whether all ranks were to be here by now."""
        job, first = self._job, self._job.table[0]
        allowed = job.limits.timeouts.get(first.name, job.limits.timeouts.get("", first.deadline))
        return now >= job.started + allowed

    def late(self, now: float) -> Awaitable[list[RankFacts]] | None:
        """Return what becomes facts about ranks that are late, None if none is.

        A rank is late when the deadline of checkpoint 0, "Ranks started", is over, counted from the
        job's first rank. In a script of the user's own one that only does not speak to us (another
        Python, `python -I`) is not, as long as something of it stirs.
        """
        job = self._job
        absent = sorted(job.members.expected - set(job.members.by_rank))
        lacking = job.members.unnamed
        if not (absent or lacking) or not self.is_due(now) or now < self._searched + SEARCH_EVERY:
            return None
        self._searched = now
        pids = _find_processes(job, absent)
        absent = sorted({*absent, *pids})
        lacking -= len(pids.keys() - job.members.expected)
        if job.runs_script:
            stirs = {rank for rank, found in pids.items() if not self._is_still(found, now)}
            absent = [rank for rank in absent if rank not in stirs]
        return _gather_facts(job, absent, pids) if absent or lacking > 0 else None

    def _is_still(self, found: Sequence[int], now: float) -> bool:
        stillness = self._stillness.setdefault(found[0], Stillness())
        since = self._stirred.setdefault(found[0], now)
        self._stirred[found[0]] = max(since, stillness.stirred_at(found))
        return now > self._stirred[found[0]] + self._job.limits.stall


def only_starts_ranks(job: Job) -> bool:
    """Return whether the only member, which no launcher has started, has started ranks of one of
    several nodes, or waits for a launcher that has started ranks: these have a monitor of their
    own, and it is none itself. May block.
    """
    members = list(job.members)
    if len(members) != 1 or job.place["launcher"]:
        return False
    (program,) = members
    own = {*(variables_of(program.pid) or {})}
    child = _read_awaited_child(program)
    for pid in family([program.pid]):
        variables = variables_of(pid) or {}
        if not any(variables.get(name) and name not in own for name in RANK_VARIABLES):
            continue
        above = [*itertools.takewhile(lambda one: one != program.pid, walk_up(pid, _DEEPEST))]
        launched = any(has_launcher(words_of(one)) for one in above)
        if find_place(variables).has_others or (launched and child in above):
            return True
    return False


def _read_awaited_child(program: RankState) -> int:
    """Return the child for whose end, or for whose words, the main thread of a program waits, 0 for
    none.
    """
    look = program.looks[-1] if program.looks else None
    if look is None:
        return 0
    call = next((task.syscall for task in look.kernel if task.tid == look.pid), None)
    return read_wanted_child(call) or min(list_awaited_pids(look), default=0)


async def find_silent_ranks(job: Job) -> list[RankFacts]:
    """Return facts about the ranks of a script of the user's own that have not spoken: those that
    run, and those that died before.
    """
    absent = sorted(job.members.expected - set(job.members.by_rank))
    first = await _find_at_store(job) if 0 in absent and job.runs_script else {}
    others = [rank for rank in absent if rank not in first]
    pids = first | (_find_processes(job, others) if others or job.members.unnamed else {})
    left = [rank for rank in absent if rank not in pids]
    return [*await _gather_facts(job, sorted(pids), pids), *_find_dead(job, left)]


async def _find_at_store(job: Job) -> dict[int, list[int]]:
    """Return the process of rank 0, by its number, where a rank that makes the group of all has one
    connection, to a process that is no launcher and makes it as rank 0; {} for any other.
    """
    from ..evidence.look import Target, take_looks

    known = {m.pid for m in job.members}
    found: set[int] = set()
    for look in (m.looks[-1] for m in job.members if m.looks):
        view = merge_looks([look])
        if view is not None and find_group_wait(view) == "construction":
            found |= list_connected_pids(look) - known
    if len(found) != 1 or has_launcher(words_of(min(found))):
        return {}
    (owner,) = await take_looks([Target(min(found), "rank")]) or (None,)
    view = merge_looks([owner]) if owner is not None else None
    told = read_group_values(view.frames) if view is not None else {}
    return {0: [min(found)]} if told.get("rank") == 0 else {}


async def is_of_group_above(job: Job) -> bool:
    """Return whether the members make the group of all with a rank 0 that is a process above them:
    that one has a monitor of its own, which sees them too.
    """
    if 0 in job.members.by_rank:
        return False
    found = await _find_at_store(job)
    above = {pid for m in job.members for pid in walk_up(m.pid, _DEEPEST)}
    return bool(found) and found[0][0] in above


def _find_dead(job: Job, absent: list[int]) -> list[RankFacts]:
    """Return facts about absent ranks whose processes died: zombies beside the ranks that are here,
    or actors of Ray of which its log has the end. Where there are more or fewer than are missing,
    none is taken for one.
    """
    if not absent:
        return []
    found: dict[int, int | None] = {}
    with contextlib.suppress(TimeoutError):
        found = within(1.0, _find_zombies, [m.pid for m in job.members if not m.has_left])
    if not found:
        looks = [m.looks[-1] for m in job.members if m.looks]
        cluster = next((one.ray for one in looks if one.ray is not None), None)
        found = {one.pid: None for one in (cluster.dead if cluster else ()) if one.pid is not None}
    if len(found) != len(absent):
        return []
    return [
        make_silent_rank(job, rank, pid, (), status=found[pid], is_dead=True)
        for rank, pid in zip(absent, sorted(found), strict=True)
    ]


def _find_zombies(known: list[int]) -> dict[int, int | None]:
    """Return the zombies that the parents of these ranks have started as they started them, by pid,
    each with its exit status. What another program was (`git`) has its name still.
    """
    names = {about.comm: about.ppid for pid in known if (about := read_stat(pid)) is not None}
    parents = set(names.values())
    found: dict[int, int | None] = {}
    for pid in family(parents):
        about = read_stat(pid)
        if about is None or about.state != "Z" or about.ppid not in parents:
            continue
        if about.comm in names or about.comm.startswith("python"):
            found[pid] = exit_code(pid)
    return found


def _find_processes(job: Job, absent: list[int]) -> dict[int, list[int]]:
    """Return the processes of absent ranks, as far as they are found; also of some
    that no launcher listed, where ranks of this node are missing that have no number.
    """
    found: dict[int, list[int]] = {}
    known = set(job.members.by_rank)
    wanted = None if job.members.unnamed else set(absent)
    with contextlib.suppress(TimeoutError):
        launcher = int(job.place["launcher_pid"])
        found = within(1.0, _find_below_launcher, launcher, _pick_rank_variable(job), wanted, known)
    left = [rank for rank in absent if rank not in found]
    if job.runs_script and left:
        with contextlib.suppress(TimeoutError):
            found |= within(1.0, _find_spawned, [m.pid for m in job.members], left)
    return found


def _find_spawned(known: list[int], absent: list[int]) -> dict[int, list[int]]:
    """Return the processes of ranks that a program spawned (torch.multiprocessing.spawn), or that
    Ray started: they know their numbers only when they join a group. It starts them in their
    order; where there are more or fewer than are missing, none is taken for one.
    """
    parents = {found.ppid for pid in known if (found := read_stat(pid)) is not None}
    siblings = [p for p in family(parents) if (s := read_stat(p)) and s.ppid in parents]
    kinds = {_kind_of_spawned(p) for p in known}
    spawned = {p: kind for p in siblings if p not in known and (kind := _kind_of_spawned(p))}
    # Of Ray's actors those of the same class as the ranks that are known, where there are such.
    alike = [p for p, kind in spawned.items() if kind in kinds]
    silent = sorted(alike or (p for p, kind in spawned.items() if not has_title(words_of(p))))
    return (
        {r: [p] for r, p in zip(absent, silent, strict=True)} if len(silent) == len(absent) else {}
    )


async def find_spawned_ranks(
    job: Job, known: Sequence[int], absent: Sequence[int]
) -> list[RankFacts]:
    """Return facts about absent ranks that were spawned beside ranks which are known, as long as
    there are as many of them.
    """
    pids: dict[int, list[int]] = {}
    with contextlib.suppress(TimeoutError):
        pids = within(1.0, _find_spawned, [*known], [*absent])
    return await _gather_facts(job, sorted(pids), pids)


def _kind_of_spawned(pid: int) -> str:
    """Return how a process was started that may be a rank and has not said so: by multiprocessing,
    or as an actor of Ray, by its class, or the title that it gave itself, without numbers; "" for
    any other.
    """
    words = words_of(pid)
    if any("multiprocessing.spawn" in word for word in words):
        return "spawn"
    actor = find_actor(words)
    if actor:
        return f"ray::{actor.partition('.')[0]}"
    return kind_by_title(words)


async def _gather_facts(job: Job, absent: list[int], pids: dict[int, list[int]]) -> list[RankFacts]:
    from ..evidence.look import Target, take_looks

    looks = await take_looks([Target(pids[rank][-1], "rank") for rank in absent if rank in pids])
    by_pid = {one.pid: one for one in looks}
    for chain in (pids[rank] for rank in absent if rank in pids):
        # All of it: a wrapper whose child alone is ended goes on and starts the rank.
        job.family.add_rank(chain[0])
    found = []
    for rank in absent:
        pid = pids[rank][-1] if rank in pids else None
        seen = (by_pid[pid],) if pid in by_pid else ()
        found.append(make_silent_rank(job, rank, pid, seen))
    return found


def make_silent_rank(
    job: Job,
    rank: int,
    pid: int | None,
    looks: tuple[Look, ...],
    status: int | None = None,
    is_dead: bool = False,
) -> RankFacts:
    from ..base.rank_facts import RankFacts

    return RankFacts(
        rank=rank,
        local_rank=rank - int(job.place["rank"]) + int(job.place["local_rank"]),
        pid=pid,
        host=str(job.place["host"]),
        alive=pid is not None and not is_dead,
        left=is_dead,
        status=status,
        never_started=pid is None or not job.runs_script,
        step=SILENT if job.runs_script else None,
        looks=looks,
    )


def _pick_rank_variable(job: Job) -> str:
    """Return the variable by which the launcher tells ranks apart: others may be there as well."""
    dialect = job.place["launcher"]
    return DIALECTS[dialect if dialect in DIALECTS else "torchrun"].rank


def _find_below_launcher(
    launcher: int, variable: str, wanted: set[int] | None, known: set[int]
) -> dict[int, list[int]]:
    """Return the processes below the launcher of each rank that is `wanted` (None: of any) and not
    `known`, in the order of their pids: a wrapper, and what it has started.
    """
    found: dict[int, list[int]] = {}
    for pid in sorted(family([launcher])):
        rank = number(variables_of(pid) or {}, variable)
        if rank is not None and rank not in known and (wanted is None or rank in wanted):
            found.setdefault(rank, []).append(pid)
    return found
