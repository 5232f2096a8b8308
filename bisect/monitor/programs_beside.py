"""Programs that one command starts beside each other, alike but for numbers among their arguments
or variables: each is a job of its own to the monitor until they are seen to be the ranks of one.

    for gpu in 0 1 2; do python train.py --gpu $gpu --port 29500 & done; wait

They are where a flag says so, where they make a group by these numbers, or where they have
connections to one another; else they may be runs with another seed each. Or each stands for a node
and has started ranks, which make groups of the same size and have different numbers.

Of such ranks nobody is judged alone: the last one that stands still is judged with all of them, and
the verdict is theirs.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..base.command_words import mask_numbers, number_programs
from ..base.deadline import within
from ..base.lazy_dataclass import dataclass
from ..base.place import find_watched_command
from ..base.proc import list_pids, read_stat
from ..base.rank_facts import JobFacts, RankFacts
from ..base.rank_state import RankState
from ..collect.beside import meet_one_another
from ..collect.source_facts import add_source_facts
from ..diagnosis.snapshot import Snapshot
from ..dumps.facts_in_stack import read_rank_locals
from ..evidence import movement
from ..evidence.process import uid_of, variables_of, words_of
from .job_facts import add_logs, make_rank_facts
from .missing_ranks import find_spawned_ranks, make_silent_rank

if TYPE_CHECKING:
    from ..base.process_facts import Look
    from .job import Job
    from .server import Server

_READ_LIMIT = 1.0  # seconds to read the commands of all
_FEWEST_LOOKS = 2  # at a program that is judged: one alone shows no movement
_STILL_ENOUGH = 0.9  # of --stall: not all looks come at the same moment
# --stalls in which another one may move, where only a flag tells that they are ranks of one job:
# such runs may be of their own after all (one worker each on a queue).
_LONGEST_DOUBT = 5


@dataclass(frozen=True)
class _Program:
    """A member of a job, and the command that it was started by."""

    job: Job
    member: RankState
    words: tuple[str, ...]


@dataclass(frozen=True)
class ProgramsBeside:
    """The ranks of one job that are programs beside each other, and the jobs that they were."""

    facts: JobFacts
    seen: Snapshot
    others: Sequence[Server]  # who serves the others
    awaited: str  # in words, who of the others moves or was not looked at yet; "" for nobody
    is_sure: bool  # more than a flag tells that they are ranks of one job


async def find_programs_beside(job: Job, facts: JobFacts, seen: Snapshot) -> ProgramsBeside | None:
    """Return the job that a program of the user's own is a rank of, or has started ranks of, with
    the others; None where it stands alone, or is one of a launcher's.
    """
    if not _is_of_script(job):
        return None
    servers = _list_servers(job)
    try:
        programs, known = within(_READ_LIMIT, _number_ranks, job, servers)
    except TimeoutError:  # one is in the kernel, and keeps who reads its command waiting
        return None
    if known is None:
        return None
    own, numbers = {member.pid for member in job.members}, known.numbers
    others = [one for pid, one in programs.items() if pid in numbers and one.job is not job]
    theirs = {one.member.pid for one in others}
    ranks = [facts for facts in seen.ranks if facts.pid in (own - theirs) & numbers.keys()]
    for other in dict.fromkeys(one.job for one in others):
        there = [_make_facts(one) for one in others if one.job is other]
        ranks += await add_logs(other, there, facts.ended)
    ranks = [_number_rank(facts, numbers) for facts in ranks]
    strangers = {n: pid for pid, n in numbers.items() if pid not in programs}
    ranks += await _look_at_strangers(job, strangers) if strangers else []
    absent = sorted({*range(known.world)} - {*numbers.values()})
    if absent:
        ranks += await add_source_facts(await find_spawned_ranks(job, [*numbers], absent))
    waited_for = [_describe_awaited(one, numbers) for one in others if one.member.pid not in own]
    waited_for += [_name_awaited(one.pid, numbers) for one in ranks if one.moved]
    command = find_watched_command(min(numbers)) or facts.command
    here = tuple(sorted(one.rank for one in ranks))
    return ProgramsBeside(
        replace(facts, command=tuple(command), world_size=known.world, local_ranks=here),
        Snapshot(sorted(ranks, key=lambda facts: facts.rank)),
        [one for one in servers if any(m.pid in numbers for m in one.job.members)],
        next(filter(None, waited_for), ""),
        known.is_sure,
    )


def _number_ranks(
    job: Job, servers: Sequence[Server]
) -> tuple[Mapping[int, _Program], _Numbers | None]:
    """Return the members of all jobs, and the numbers of those that are ranks of one with this."""
    programs = _list_programs([job, *(one.job for one in servers)])
    own = {member.pid for member in job.members}
    known = _number_by_commands(programs, own) or _number_by_group(programs, job)
    return programs, known or _number_with_strangers(programs, own)


def stand_for_programs(job: Job, beside: ProgramsBeside) -> None:
    """Let the members of a job speak for all ranks: when they move, its verdict is taken back."""
    own = {member.pid: member.rank for member in job.members}
    first = min(own.values())
    job.stands_for = {facts.rank: own.get(facts.pid or 0, first) for facts in beside.seen.ranks}


def is_worth_waiting(job: Job, beside: ProgramsBeside) -> bool:
    """Return whether a job is not to be judged yet because of the programs beside it."""
    if not beside.awaited:
        return False
    now = time.monotonic()
    since = job.beside_since or now
    return beside.is_sure or now < since + _LONGEST_DOUBT * job.limits.stall


def _list_servers(job: Job) -> list[Server]:
    """Return who serves the other scripts of the same command, without those that had ended before
    this one began.
    """
    others = (one for one in job.beside() if one.job is not job and _is_of_script(one.job))
    return [one for one in others if one.job.members.lived_after(job.began)]


def _is_of_script(job: Job) -> bool:
    return job.runs_script and job.place["launcher"] is None and not job.place["joined"]


def _list_programs(jobs: Sequence[Job]) -> dict[int, _Program]:
    """Return by pid the members of all jobs; who knows its rank by now was a job of its own before,
    and is one of that job no more.
    """
    found: dict[int, _Program] = {}
    for job in sorted(jobs, key=lambda one: one.members.world_size):
        for member in job.members:
            found[member.pid] = _Program(job, member, _read_words(job, member))
    return found


def _read_words(job: Job, member: RankState) -> tuple[str, ...]:
    """Return the command of a member; of one that is gone, and was alone, that of its job."""
    words: Sequence[str] = words_of(member.pid)
    if not words and len(job.members.by_rank) == 1:
        words = job.settings["command"]
    return _shorten_command(words)


def _shorten_command(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command without the folder of its program: a shell may have found it by PATH."""
    return (os.path.basename(words[0]), *words[1:]) if words else ()


@dataclass(frozen=True)
class _Numbers:
    """The numbers of ranks by pid."""

    numbers: Mapping[int, int]
    world: int
    is_sure: bool


def _number_by_commands(programs: Mapping[int, _Program], own: Collection[int]) -> _Numbers | None:
    """Return the numbers of programs that their commands tell, or variables of their own."""
    kinds = {mask_numbers(programs[pid].words) for pid in own}
    alike = [one for one in programs.values() if mask_numbers(one.words) in kinds]
    environs = [variables_of(one.member.pid) for one in alike]
    told = number_programs([one.words for one in alike], environs=environs)
    if len(kinds) != 1 or told is None:
        return None
    numbers = {one.member.pid: n for one, n in zip(alike, told.numbers, strict=True)}
    in_group = {
        one.member.pid: (one.member.rank, one.job.members.world_size)
        for one in alike
        if one.job.members.world_size > 1
    }
    if any(claim != (numbers[pid], len(numbers)) for pid, claim in in_group.items()):
        return None
    looks = {one.member.pid: one.member.looks[-1] for one in alike if one.member.looks}
    is_sure = bool(in_group) or meet_one_another(looks, numbers)
    return _Numbers(numbers, len(numbers), is_sure) if is_sure or told.by_flag else None


def _number_with_strangers(
    programs: Mapping[int, _Program], own: Collection[int]
) -> _Numbers | None:
    """Return the numbers of ranks that say theirs where they make a group, with those of programs
    of the same user that this watch does not have (started in another terminal), where commands are
    alike but for these numbers and no rank is missing then.
    """
    members = (programs[pid].member for pid in own)
    told_by_stack = {m.pid: read_rank_locals(m.looks[-1]) for m in members if m.looks}
    claims = {pid: one for pid, one in told_by_stack.items() if None not in (one.number, one.world)}
    if not any((one.world or 0) > len(own) for one in claims.values()):
        return None
    words = {pid: programs[pid].words for pid in own}
    kinds, user = {mask_numbers(one) for one in words.values()}, uid_of(min(own))
    if len(kinds) != 1:
        return None
    for pid in list_pids():
        about = read_stat(pid) if pid not in programs and uid_of(pid) == user else None
        if about is not None and about.state not in ("Z", "X", "D"):
            found = _shorten_command(words_of(pid))
            if found and mask_numbers(found) in kinds:
                words[pid] = found
    told = number_programs([*words.values()], environs=[variables_of(pid) for pid in words])
    if told is None:
        return None
    numbers = dict(zip(words, told.numbers, strict=True))
    is_so = all((t.number, t.world) == (numbers[pid], len(numbers)) for pid, t in claims.items())
    return _Numbers(numbers, len(numbers), True) if is_so else None


async def _look_at_strangers(job: Job, pids: Mapping[int, int]) -> Sequence[RankFacts]:
    """Return ranks that this watch does not have, by their numbers, and whether they move. Nothing
    of them is ended with the job.
    """
    from ..collect.looks import PAUSE  # not at the top: few jobs come to it
    from ..evidence.look import Target, take_looks

    series: dict[int, list[Look]] = {pid: [] for pid in pids.values()}
    for again in range(_FEWEST_LOOKS):
        await asyncio.sleep(PAUSE * again)
        for one in await take_looks([Target(pid, "rank") for pid in series]):
            series[one.pid].append(one)
    return await add_source_facts(
        [
            replace(
                make_silent_rank(job, number, pid, tuple(series[pid])),
                moved=movement.describe_movement(series[pid]),
            )
            for number, pid in pids.items()
        ]
    )


def _number_by_group(programs: Mapping[int, _Program], job: Job) -> _Numbers | None:
    """Return the numbers of ranks that programs have started, each those of one node: they make
    groups of the same size, and no two have one number.
    """
    world = job.members.world_size
    parts = [one for one in programs.values() if one.job.members.world_size == world > 1]
    # It passes for the only rank of its job until it has started those that are.
    starters = {about.ppid for one in parts if (about := read_stat(one.member.pid)) is not None}
    ranks = [one for one in parts if one.member.pid not in starters]
    numbers = {one.member.pid: one.member.rank for one in ranks}
    is_told = len(numbers) == len({*numbers.values()}) and max(numbers.values(), default=0) < world
    is_of_several = len({id(one.job) for one in ranks}) > 1 and any(o.job is job for o in ranks)
    return _Numbers(numbers, world, True) if is_told and is_of_several else None


def _make_facts(one: _Program) -> RankFacts:
    """Return what is known of a member of another job, which has stood still since."""
    member = one.member
    busy = movement.is_busy(member.looks, list(member.children.values()), "")
    return make_rank_facts(member, busy=busy)


def _number_rank(facts: RankFacts, numbers: Mapping[int, int]) -> RankFacts:
    """Return a rank by its number, without the others among the processes that were started with
    it.
    """
    children = tuple(looks for looks in facts.children if looks[-1].pid not in numbers)
    beside = tuple(pid for pid in facts.beside if pid not in numbers)
    number = numbers[facts.pid or 0]
    return replace(facts, rank=number, local_rank=number, children=children, beside=beside)


def _describe_awaited(one: _Program, numbers: Mapping[int, int]) -> str:
    """Return in words who of them it is if it moves, or was not looked at often enough; else ""."""
    member = one.member
    moves = time.monotonic() < member.moved_at + _STILL_ENOUGH * one.job.limits.stall
    if member.left or not (moves or len(member.looks) < _FEWEST_LOOKS):
        return ""
    return _name_awaited(member.pid, numbers)


def _name_awaited(pid: int | None, numbers: Mapping[int, int]) -> str:
    return f"number {numbers[pid or 0]} of {len(numbers)} programs (PID {pid})"
