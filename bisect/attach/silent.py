"""Ranks of which no environment tells: what the locals of their frames say.

`torch.multiprocessing.spawn`, notebooks (which fork) and scripts that start their ranks themselves
set no variable that can be seen from outside. What started such a process has its number among its
locals, so has whoever meets the others, and so may the script's own functions. A number that none
of them tells is unknown; it is never made up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..diagnosis.frames import owner, short
from ..evidence.frame_locals import text_of
from ..evidence.look import Target, look
from ..facts import Frame, Look
from .processes import Process, Table, above
from .ranks import Rank

MOST = 64  # processes that are looked at for this
LIMIT = 2.0  # seconds for all of them
_FORKED = "--multiprocessing-fork"
_C10D = "torch/distributed/distributed_c10d.py"
# (end of the file, function, its local for the whole job's number, for the node's). The number in
# the whole job stands where ranks meet; what starts processes counts those of its own node.
_TELLING = (
    ("torch/distributed/rendezvous.py", r"\w*rendezvous\w*|_create_c10d_store", "rank", ""),
    (_C10D, "init_process_group|_store_based_barrier", "rank", ""),
    (_C10D, "_new_process_group_helper", "group_rank", ""),
    ("fabric/utilities/distributed.py", "_init_dist_connection", "global_rank", ""),
    ("deepspeed/comm/comm.py", "init_distributed", "rank", ""),
    ("torch/multiprocessing/spawn.py", "_wrap", "", "i"),
    ("torch/distributed/elastic/multiprocessing/api.py", "_wrap", "", "local_rank"),
    ("strategies/launchers/multiprocessing.py", "_wrapping_function", "", "process_idx"),
    ("accelerate/utils/launch.py", "__call__", "", "index"),
)
_WORKERS = re.compile(
    r"torch/utils/data/_utils/worker\.py$|multiprocessing/(?:pool|resource_tracker|forkserver"
    r"|managers)\.py$|concurrent/futures/process\.py$|joblib/"
)
_MASTERS = ("hostname", "master_addr")
_WORLDS = ("world_size", "nprocs")


@dataclass(frozen=True)
class Told:
    """What the stack of one process tells of it."""

    number: int | None = None  # in the whole job
    local: int | None = None  # on its node
    world: int | None = None
    master: str = ""  # the host where the ranks meet
    worker: bool = False  # it serves another process


def candidates(processes: Table, ranks: Sequence[Rank], spared: set[int]) -> list[Process]:
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


def _belongs_to(processes: Table, one: Process, known: set[int]) -> bool:
    return any(each.pid in known for each in (one, *above(processes, one.pid)))


async def look_for_ranks(pids: Sequence[int]) -> dict[int, Look]:
    """Return a look at each of these processes."""
    looks = await look([Target(pid, "rank", python=True) for pid in pids], limit=LIMIT)
    return {one.pid: one for one in looks if one.state}


def from_stacks(processes: Table, looks: Mapping[int, Look]) -> list[Rank]:
    """Return the ranks among these processes: where the stack of one tells its number, those that
    the same process has started are ranks as well, and that of one that does not tell is unknown.
    """
    families: dict[int, dict[int, Told]] = {}
    for pid, one in looks.items():
        if not (found := told(one)).worker and pid in processes:
            families.setdefault(processes[pid].ppid, {})[pid] = found
    return [
        rank
        for parent, members in families.items()
        if any((t.number, t.local) != (None, None) for t in members.values())
        for rank in _family(processes, parent, members)
    ]


def _family(processes: Table, parent: int, members: Mapping[int, Told]) -> list[Rank]:
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


def told(one: Look) -> Told:
    """Return what the main thread's frames tell of a process."""
    frames = [frame for frame in (one.main.frames if one.main else ()) if not frame.native]
    if any(_WORKERS.search(frame.file) for frame in frames):
        return Told(worker=True)
    number = local = world = None
    master = ""
    for frame in frames:  # innermost first: who meets knows better than who started it
        here = _of_frame(frame)
        number = here.number if number is None else number
        local = here.local if local is None else local
        world = here.world if world is None else world
        master = master or here.master
    if number is None:
        number = next((n for f in reversed(frames) if (n := _own(f, "rank")) is not None), None)
    if world is None:
        sizes = (n for f in reversed(frames) for w in _WORLDS if (n := _own(f, w)) is not None)
        world = next(sizes, None)
    return Told(number, local, world, master)


def _of_frame(frame: Frame) -> Told:
    values = dict(frame.locals)
    name = short(frame.name)
    for file, function, number, local in _TELLING:
        if frame.file.endswith(file) and re.fullmatch(function, name):
            return Told(
                _number(values, number),
                _number(values, local),
                next((n for w in _WORLDS if (n := _number(values, w))), None),
                next((text for m in _MASTERS if (text := text_of(values.get(m, "")))), ""),
            )
    return Told()


def _own(frame: Frame, name: str) -> int | None:
    """Return a number among the locals of the script's own function."""
    number = _number(dict(frame.locals), name)
    return number if number is not None and owner(frame, "") == "user" else None


def _number(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
