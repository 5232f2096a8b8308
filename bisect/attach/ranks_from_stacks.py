"""Ranks of which no environment tells: what the locals of their frames say.

`torch.multiprocessing.spawn`, notebooks (which fork) and scripts that start their ranks themselves
set no variable that can be seen from outside. What started such a process has its number among its
locals, so has whoever meets the others, and so may the script's own functions. A number that none
of them tells is unknown; it is never made up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..base.facts import Look
from ..dumps.rank_locals import RankLocals, read_rank_locals
from ..evidence.look import Target, take_looks
from .processes import Process, ProcessTable, processes_above
from .ranks import Rank

MOST = 64  # processes that are looked at for this
LIMIT = 2.0  # seconds for all of them
_FORKED = "--multiprocessing-fork"


def find_candidates(
    processes: ProcessTable, ranks: Sequence[Rank], spared: set[int]
) -> list[Process]:
    """Return the Python processes that multiprocessing may have started as ranks: children of a
    Python that is no rank and belongs to none.
    """
    known = {rank.pid for rank in ranks}
    found = []
    for one in processes.values():
        parent = processes.get(one.ppid)
        if one.pid in spared or not one.python or parent is None or not parent.python:
            continue
        if one.ours or parent.ours or parent.launcher or _belongs_to(processes, one, known):
            continue
        if _is_started_by(one, parent):
            found.append(one)
    return sorted(found, key=lambda one: one.pid)[:MOST]


def _is_started_by(one: Process, parent: Process) -> bool:
    """Return whether multiprocessing in one process may have started another: no other program."""
    return _FORKED in one.words or one.words == parent.words


def _belongs_to(processes: ProcessTable, one: Process, known: set[int]) -> bool:
    return any(each.pid in known for each in (one, *processes_above(processes, one.pid)))


async def look_for_ranks(pids: Sequence[int]) -> dict[int, Look]:
    """Return a look at each of these processes."""
    looks = await take_looks([Target(pid, "rank", python=True) for pid in pids], limit=LIMIT)
    return {one.pid: one for one in looks if one.state}


def read_ranks_from_stacks(processes: ProcessTable, looks: Mapping[int, Look]) -> list[Rank]:
    """Return the ranks among these processes: where the stack of one tells its number, those that
    the same process has started are ranks as well, and that of one that does not tell is unknown.
    """
    families: dict[int, dict[int, RankLocals]] = {}
    for pid, one in looks.items():
        if not (found := read_rank_locals(one)).worker and pid in processes:
            families.setdefault(processes[pid].ppid, {})[pid] = found
    return [
        rank
        for parent, members in families.items()
        if any((t.number, t.local) != (None, None) for t in members.values())
        for rank in _family(processes, parent, members)
    ]


def _family(processes: ProcessTable, parent: int, members: Mapping[int, RankLocals]) -> list[Rank]:
    """Return the ranks that one process has started. The numbers on a node are those of the whole
    job where it has no other node.
    """
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
        ranks.append(Rank(pid, number, t.local, size, launcher, "", "stack", t.master))
    numbers = [rank.number for rank in ranks if rank.number is not None]
    if len(numbers) != len(set(numbers)):  # they mean something else
        return [replace(rank, number=None, world=world) for rank in ranks]
    return ranks
