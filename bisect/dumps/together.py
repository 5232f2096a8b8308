"""All dumps together: which process is which rank, and the job that they show."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..attach.silent import Told, told
from ..diagnosis.frames import owner, short
from ..facts import CollectiveLog, Frame, Kernel, Look, RankFacts, Syscall, Thread
from ..rank.claims import Ancestor
from .blocked import without_sleep
from .dumped import Contents, Dumped, Recorded
from .rank_of import by_names

# Ranks that nobody knows the number of have one inside: no two of them stand beside each other, so
# that they are never taken for a range, and none can be a rank.
_UNKNOWN = -1_000_000
# What faulthandler calls the signals by which a process ends by itself (Modules/faulthandler.c).
# Not "Aborted": so ends as well what hung until a watchdog of NCCL's lost its patience.
_ENDS = {
    "Segmentation fault": signal.SIGSEGV,
    "Bus error": signal.SIGBUS,
    "Floating-point exception": signal.SIGFPE,
    "Floating point exception": signal.SIGFPE,
    "Illegal instruction": signal.SIGILL,
}
_LAUNCHERS = ("torch/distributed/run.py", "accelerate/commands/", "deepspeed/launcher/")


@dataclass(frozen=True)
class Known:
    """A rank, by its number if that is known, and where it stands in the files."""

    facts: RankFacts
    number: int | None
    sources: tuple[str, ...]  # "FILE:LINE"
    has_stack: bool = True


@dataclass(frozen=True)
class Merged:
    """What all dumps show together."""

    ranks: tuple[Known, ...]
    world_size: int  # 0: not known
    notes: tuple[str, ...] = ()

    @property
    def unseen(self) -> tuple[int, ...]:
        """The ranks that the job has and no dump shows; none where some have no number."""
        numbers = {one.number for one in self.ranks}
        if None in numbers:
            return ()
        return tuple(rank for rank in range(self.world_size) if rank not in numbers)


class _Said(NamedTuple):
    """A process, and what its stack tells of it."""

    dump: Dumped
    says: Told


@dataclass
class _Rank:
    """A rank while it is put together."""

    number: int | None
    pid: int | None
    host: str = ""
    dumps: list[Dumped] = field(default_factory=list)
    children: dict[object, list[Dumped]] = field(default_factory=dict)
    logs: list[Recorded] = field(default_factory=list)


def together(found: Contents) -> Merged:
    """Return the job that these dumps show."""
    notes: list[str] = []
    files = [*(one.file for one in found.processes), *(one.file for one in found.recorded)]
    files += [one.file for one in found.unreadable]  # they too are a rank's
    names = by_names(list(dict.fromkeys(files)))
    said = [_Said(one, _told(one)) for one in found.processes]
    ranks = _ranks(said, names, notes)
    _with_logs(ranks, found.recorded, names, notes)
    ranks.sort(key=lambda one: (one.number is None, one.number or 0))
    knowns = []
    unknown = 0
    for one in ranks:
        unknown += one.number is None
        knowns.append(_known(one, _UNKNOWN - unknown * (unknown + 1)))
    world = _world(found, [one.says for one in said], ranks, names)
    return Merged(tuple(knowns), world, tuple(dict.fromkeys(notes)))


# ---- which process is which ----------------------------------------------------------------------


def _ranks(said: Sequence[_Said], names: dict[str, int], notes: list[str]) -> list[_Rank]:
    jobs: list[_Said] = []
    for one, says in said:
        if _is_launcher(one):
            notes.append(f"{_at(one)}: the launcher ({one.pid or 'pid unknown'}) is no rank")
        else:
            jobs.append(_Said(one, says))
    of_jobs = {(one.file, one.pid) for one, _ in jobs if one.pid is not None}
    alone = _alone_in_their_files(jobs)
    ranks: dict[object, _Rank] = {}
    children: list[Dumped] = []
    for one, says in jobs:
        if says.worker or (one.file, one.parent) in of_jobs:
            children.append(one)
            continue
        number = one.rank if one.rank is not None else says.number
        if number is None and one.file in alone:
            number = names.get(one.file)
        rank = ranks.setdefault(_key(one, number), _Rank(number, one.pid, one.host))
        rank.dumps.append(one)
    made = _without_doubles(list(ranks.values()), notes)
    _with_children(made, children, notes)
    return made


def _alone_in_their_files(jobs: Sequence[_Said]) -> set[str]:
    """Return the files that hold one process alone, its workers aside: what such a file is called
    says which rank it is. A dump without a pid (faulthandler's) is of the process beside it.
    """
    pids: dict[str, set[int | None]] = {}
    for one, says in jobs:
        if not says.worker:
            pids.setdefault(one.file, set()).add(one.pid)
    parents = {(one.file, one.pid) for one, _ in jobs}
    for one, _ in jobs:
        if one.parent is not None and (one.file, one.parent) in parents:
            pids.get(one.file, set()).discard(one.pid)
    return {file for file, inside in pids.items() if len(inside - {None}) <= 1}


def _is_launcher(one: Dumped) -> bool:
    if one.command and Ancestor({}, tuple(one.command.split())).launcher is not None:
        return True
    frames = _main_frames(one)
    return any(part in frame.file for frame in frames for part in _LAUNCHERS)


def _told(one: Dumped) -> Told:
    return told(_look(one, 0.0, one.pid or 0))


def _main_frames(one: Dumped) -> tuple[Frame, ...]:
    return one.threads[0].frames


def _key(one: Dumped, number: int | None) -> object:
    """Return what tells one process from another."""
    if one.pid is not None:
        return "pid", one.host, one.pid, number
    if number is not None:
        return "rank", number
    return "file", one.file, one.thread or one.line


def _without_doubles(ranks: list[_Rank], notes: list[str]) -> list[_Rank]:
    """Return `ranks`; where several processes have one number, it is the number of none."""
    found: dict[int, list[_Rank]] = {}
    for one in ranks:
        if one.number is not None:
            found.setdefault(one.number, []).append(one)
    gone: set[int] = set()
    for number, doubles in found.items():
        known = [one for one in doubles if one.pid is not None]
        nameless = [one for one in doubles if one.pid is None]
        if len(known) == 1 and nameless:  # another tool, which names no pid
            for one in nameless:
                known[0].dumps += one.dumps
                gone.add(id(one))
        elif len(known) > 1:
            where = ", ".join(f"{_at(one.dumps[0])} (pid {one.pid})" for one in doubles[:4])
            notes.append(f"rank {number} is claimed by {len(doubles)} processes: {where}")
            for one in doubles:
                one.number = None
    return [one for one in ranks if id(one) not in gone]


def _with_children(ranks: list[_Rank], children: Sequence[Dumped], notes: list[str]) -> None:
    """Give each child to its rank: the parent that it names, else the one of its number, else the
    only one in its file.
    """
    owners: dict[object, list[_Rank]] = {}
    for rank in ranks:
        files = {dump.file for dump in rank.dumps}
        keys = [*files, *((file, rank.pid) for file in files), rank.pid, ("rank", rank.number)]
        for key in keys:
            owners.setdefault(key, []).append(rank)
    for one in children:
        keys = [(one.file, one.parent), one.parent, ("rank", one.rank), one.file]
        asked = [key for key in keys if key is not None and key != ("rank", None)]
        found = next((few[0] for k in asked if len(few := owners.get(k, [])) == 1), None)
        if found is None:
            notes.append(f"{_at(one)}: a worker, of a rank that is not among the dumps")
        else:
            number = one.pid if one.pid is not None else (one.file, one.line)
            found.children.setdefault(number, []).append(one)


def _with_logs(
    ranks: list[_Rank], recorded: Sequence[Recorded], names: dict[str, int], notes: list[str]
) -> None:
    with_stacks = bool(ranks)
    for one in recorded:
        number = one.rank if one.rank is not None else names.get(one.file)
        if number is None and with_stacks:
            notes.append(f"{one.file}: its name tells no rank, so its collectives go unused")
            continue
        rank = next((r for r in ranks if number is not None and r.number == number), None)
        if rank is None:
            rank = _Rank(number, None)
            ranks.append(rank)
        rank.logs.append(one)


# ---- the job -------------------------------------------------------------------------------------


def _known(one: _Rank, unknown: int) -> Known:
    number = unknown if one.number is None else one.number
    pid = one.pid if one.pid is not None else 0
    # One log may have a rank's earlier starts as well.
    dumps = [dump for dump in one.dumps if dump.thread in ("", one.dumps[-1].thread)]
    looks = tuple(_look(dump, float(at), pid) for at, dump in enumerate(dumps))
    children = tuple(
        tuple(_look(d, float(at), d.pid or -2 - n) for at, d in enumerate(dumps))
        for n, dumps in enumerate(one.children.values())
    )
    logs = _fullest(one.logs)
    if not looks:
        looks = (_in_the_log(logs),)
    fatal = next((dump.fatal for dump in one.dumps if dump.fatal in _ENDS), "")
    facts = RankFacts(
        alive=not fatal,
        left=bool(fatal),
        status=-_ENDS[fatal] if fatal else None,
        error=f"Fatal Python error: {fatal}" if fatal else "",
        rank=number,
        local_rank=number,
        pid=one.pid,
        host=one.host,
        looks=looks,
        children=children,
        collectives=logs,
        moved=_moved(looks),
    )
    sources = tuple(dict.fromkeys([*map(_at, one.dumps), *(log.file for log in one.logs)]))
    return Known(facts, one.number, sources, bool(one.dumps))


def _fullest(logs: Iterable[Recorded]) -> tuple[CollectiveLog, ...]:
    """Return the log that goes on longest: several dumps of one rank were made one after another,
    or the same as a pickle and as JSON.
    """
    found = [one.log for one in logs]
    newest = max(
        found, key=lambda log: max((o.at for o in log.operations), default=0), default=None
    )
    return () if newest is None else (newest,)


def _in_the_log(logs: Sequence[CollectiveLog]) -> Look:
    """Return what stands for a rank without a stack: the collective that its log ends in, as torch
    names its function; nothing where the last one is over.
    """
    ops = [one for log in logs for one in log.operations]
    last = ops[-1] if ops else None
    threads: tuple[Thread, ...] = ()
    if last is not None and last.done is False:
        file = "/site-packages/torch/distributed/distributed_c10d.py"
        threads = (Thread(0, "MainThread", False, False, (Frame(last.kind, file, 0),)),)
    return Look(0.0, 0, 0, "", (), 0.0, "?", "proc", threads)


def _look(one: Dumped, at: float, pid: int) -> Look:
    main = one.threads[0]
    frames = without_sleep(main.frames)
    threads = (
        replace(main, os_id=pid, frames=frames),
        *(t for t in one.threads[1:] if t.os_id != pid),
    )
    state = "R" if main.active and not one.call else "S"
    call = Syscall(-1, one.call, ()) if one.call else None
    return Look(
        at=at,
        pid=pid,
        ppid=one.parent or 0,
        name=os.path.basename(one.command.split(" ")[0]) if one.command else "",
        command=tuple(one.command.split(" ")) if one.command else (),
        age=0.0,
        state=state,
        rung=one.tool,
        threads=threads,
        kernel=(Kernel(pid, "", state, "", call),),
    )


def _moved(looks: Sequence[Look]) -> str:
    """Return in words that the job's own code went on from one dump to the next, "" if not."""
    places = []
    for look in looks:
        frames = look.main.frames if look.main else ()
        own = [f for f in frames if owner(f, "") == "user"]
        places.append(tuple((f.file, short(f.name), f.line) for f in own))
    last = places[-2:]
    return "another place at the last dump" if len(set(last)) > 1 else ""


def _world(
    found: Contents, says: Sequence[Told], ranks: Sequence[_Rank], names: Mapping[str, int]
) -> int:
    """Return how many ranks the job has, as far as a stack or a log says so, at least those that
    were found, or that have a file in which nothing was found.
    """
    numbers = [names[one.file] + 1 for one in found.unreadable if one.file in names]
    told_so = [one.world for one in says if one.world]
    in_logs = [len(one.members) for one in found.recorded]
    numbers += [one.number + 1 for one in ranks if one.number is not None]
    return max([*told_so, *in_logs, *numbers, len(ranks)], default=0)


def _at(one: Dumped) -> str:
    return f"{one.file}:{one.line}"
