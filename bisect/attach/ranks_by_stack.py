"""Which processes are ranks, by what their stacks and their arguments tell: those that no launcher
has given variables.

`torch.multiprocessing.spawn`, notebooks (which fork) and scripts that start their ranks themselves
set no variable that can be seen from outside. What started such a process has its number among its
locals, so has whoever meets the others, and so may the script's own functions; or a program has it
among its arguments. A number that none of them tells is unknown; it is never made up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..base.command_words import (
    SPAWNED,
    Numbering,
    has_title,
    mask_numbers,
    number_programs,
    program,
)
from ..base.process_facts import Look
from ..base.process_roles import number_ranks
from ..collect.beside import meet_one_another, meets_ranks
from ..diagnosis.process.actor_waits import put_job_thread_first
from ..diagnosis.process.blocked_syscalls import (
    CHILD_WAIT_CALLS,
    SLEEP_CALLS,
    list_awaited_pids,
)
from ..diagnosis.process.pipe_writers import reads_words_of
from ..diagnosis.process.process_snapshot import main_kernel
from ..dumps.facts_in_stack import RankLocals, read_rank_locals
from ..evidence.look import Target, take_looks
from .processes import Process, ProcessTable, processes_above
from .ranks import Rank

MOST = 64  # processes that are looked at for this
LIMIT = 2.0  # seconds for all of them


def find_candidates(
    processes: ProcessTable, ranks: Sequence[Rank], spared: set[int]
) -> list[Process]:
    """Return the Python processes that multiprocessing may have started as ranks: children of a
    Python that is no rank and belongs to none; programs of one starter that have numbers among
    their arguments; and the actors of Ray.
    """
    known = {rank.pid for rank in ranks}
    numbered = {pid for numbers, _ in _number_programs(processes) for pid in numbers}
    found = []
    for one in processes.values():
        parent = processes.get(one.ppid)
        if one.pid in spared or not one.python or parent is None:
            continue
        is_known_kind = one.actor or one.is_rank_of_server or one.pid in numbered
        if is_known_kind and not _belongs_to(processes, one, known):
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


def _number_programs(processes: ProcessTable) -> Iterator[tuple[dict[int, int], bool]]:
    parents = {one.ppid for one in processes.values() if one.python and one.ppid > 1}
    for parent in sorted(parents):
        yield from number_programs_below(processes, parent)


def number_programs_below(
    processes: ProcessTable, parent: int
) -> Iterator[tuple[dict[int, int], bool]]:
    """Yield the numbers of programs that one process has started, and that are alike but for these,
    by pid; and whether their flag says that it is the number of a process.
    """
    kinds: dict[tuple[str, ...], list[Process]] = {}
    ended = 0
    for one in processes.values():
        if one.ppid == parent and one.python and not one.is_of_multiprocessing:
            kinds.setdefault(mask_numbers(one.words), []).append(one)
        ended += one.ppid == parent and one.state == "Z"
    for members in kinds.values():
        told = _number_members(members, ended)
        if told is not None:
            yield dict(zip((one.pid for one in members), told.numbers, strict=True)), told.by_flag


def _number_members(members: Sequence[Process], ended: int = 0) -> Numbering | None:
    environs = [one.environ for one in members]
    return number_programs([one.words for one in members], ended, environs)


def _number_programs_apart(
    processes: ProcessTable, found: Mapping[int, RankLocals]
) -> Iterator[dict[int, int]]:
    """Yield the numbers of programs that are alike but for these and were not started by one
    process that is there still (`nohup python train.py --rank 1 &`, two terminals), by pid: where
    one of them makes a group of as many, and says this number.
    """
    kinds: dict[tuple[int, tuple[str, ...]], list[Process]] = {}
    for pid, told in found.items():
        one = processes.get(pid)
        if one is not None and one.python and not told.worker and not one.is_of_multiprocessing:
            kinds.setdefault((one.uid, mask_numbers(one.words)), []).append(one)
    for members in kinds.values():
        parents = {one.ppid for one in members}
        if len(parents) == 1 and parents != {1}:
            continue
        numbering = _number_members(members)
        if numbering is None:
            continue
        known = dict(zip((one.pid for one in members), numbering.numbers, strict=True))
        claims = {pid: found[pid] for pid in known if found[pid].number is not None}
        if claims and all(
            (claim.number, claim.world) == (known[pid], len(known)) for pid, claim in claims.items()
        ):
            yield known


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
    by_arguments: set[int] = set()
    for numbers, by_flag in _number_programs(processes):
        # Else they may be runs of their own, each with another seed.
        if by_flag or meet_one_another(looks, numbers):
            told = {p: n for p, n in numbers.items() if p in found and not found[p].worker}
            if all(found[p].any_number in (None, n) for p, n in told.items()):
                found |= {p: replace(found[p], number=n) for p, n in told.items()}
                by_arguments |= told.keys()
    for pid, claim in found.items():
        if not claim.worker and pid in processes:
            one = processes[pid]
            if pid in looks and reads_words_of(looks[pid], one.ppid):
                continue
            if one.server is not None and not one.is_rank_of_server:
                continue
            key = one.ppid, one.actor.partition(".")[0], _name_program(processes, one)
            families.setdefault(key, {})[pid] = claim
    families = _join_programs(families)
    for numbers in _number_programs_apart(processes, found):
        kept = {f: {p: t for p, t in m.items() if p not in numbers} for f, m in families.items()}
        first = min(numbers, key=lambda pid: numbers[pid])
        joined = {p: replace(found[p], number=n, world=len(numbers)) for p, n in numbers.items()}
        families = {f: m for f, m in kept.items() if m} | {(-first, "", ""): joined}
        by_arguments |= joined.keys()
    for numbers, by_flag in _number_programs(processes):
        joined = _join_nodes(families, numbers)
        only_start = all(_only_waits_for(looks, node, joined) for node in numbers)
        if joined and only_start and (by_flag or meet_one_another(looks, joined)):
            starter = processes[min(numbers)].ppid
            kept = {f: m for f, m in families.items() if not ({f[0], *m} & {*numbers})}
            families = kept | {(starter, "", ""): joined}
            by_arguments |= joined.keys()
    telling = {
        family: members
        for family, members in families.items()
        if any(t.any_number is not None for t in members.values())
        or (
            (family[1] or any(has_title(processes[pid].words) for pid in members))
            and any(pid in looks and meets_ranks(looks[pid]) for pid in members)
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
        _say_who_started(processes, rank, parent) if rank.pid in by_arguments else rank
        for (parent, actor, name), members in telling.items()
        if parent not in ranks and not _belongs_to_any(processes, parent, ranks)
        for rank in _family(processes, parent, members, actor, name)
    ]


# The process that started its members (of those that no one process has started the first of them,
# below zero), their class as actors of Ray, and their program where that process is none of the
# job's.
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


def _join_nodes(
    families: Mapping[_Family, Mapping[int, RankLocals]], nodes: Mapping[int, int]
) -> dict[int, RankLocals]:
    """Return by pid the ranks that programs have started, as many each, where each program stands
    for a node of one job on this machine and has its number (`nodes`): ranks are counted from one
    node to the next, unless their stacks tell otherwise. {} where they are no such programs.
    """
    started = {node: [m for f, m in families.items() if f[0] == node] for node in nodes}
    if any(len(parts) != 1 for parts in started.values()):
        return {}
    parts = {node: members for node, (members,) in started.items()}
    sizes = {len(members) for members in parts.values()}
    world = sum(map(len, parts.values()))
    if len(sizes) != 1 or not {t.world for m in parts.values() for t in m.values()} <= {
        None,
        world,
    }:
        return {}
    joined = {
        pid: replace(told, number=_count_on(told, nodes[node] * len(members)), world=world)
        for node, members in parts.items()
        for pid, told in members.items()
    }
    known = [told.number for told in joined.values() if told.number is not None]
    return joined if known and len(known) == len({*known}) and max(known) < world else {}


def _count_on(told: RankLocals, first: int) -> int | None:
    if told.number is not None or told.local is None:
        return told.number
    return first + told.local


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
    """Return whether a process that stands alone has started several that tell different numbers,
    and does nothing but wait for them, for their end or for what one of them is to send: these are
    the ranks. So are they where its number is the last of theirs, whatever it does: a loop over
    them has left that among its locals.
    """
    if len(members) > 1:
        return False
    ((pid, own),) = members.items()
    below = [one for family, one in telling.items() if family[0] == pid]
    numbers = [told.any_number for one in below for told in one.values()]
    if len(numbers) < 2 or len({*numbers} - {None}) < len(numbers):
        return False
    is_last = {*numbers} == {*range(len(numbers))} and own.any_number == len(numbers) - 1
    return is_last or _only_waits_for(looks, pid, {child for one in below for child in one})


def _only_waits_for(looks: Mapping[int, Look], pid: int, started: Collection[int]) -> bool:
    """Return whether a process does nothing but wait for some that it has started, or for what one
    of these is to send.
    """
    one = looks.get(pid)
    return one is not None and (
        waits_for_what_it_started(one) or bool(list_awaited_pids(one) & {*started})
    )


def _say_who_started(processes: ProcessTable, rank: Rank, parent: int) -> Rank:
    """Return a rank that has its number among its arguments, with the script that has started all
    of them; a person's shell is none. `parent` is as in a _Family.
    """
    if parent < 0:
        return replace(rank, by="arguments", first=-parent)
    above = processes.get(parent)
    is_known = above is not None and above.has_script
    return replace(rank, by="arguments", launcher=parent if is_known else None)


def waits_for_what_it_started(one: Look) -> bool:
    """Return whether a process waits for the end of what it has started, or from one look at that
    to the next.
    """
    task = main_kernel(one)
    call = task.syscall if task is not None else None
    return call is not None and call.name in CHILD_WAIT_CALLS | SLEEP_CALLS


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
