"""Ranks that never say hello: looked for among the launcher's children, and among the processes
that a program of the user's own has started, by multiprocessing or as programs with a number each.

They call nothing that the watch knows: no process group, none of the libraries. So the program
itself passes for the only rank, and what it has started for its children. Their stacks tell which
numbers they have (dumps/facts_in_stack.py), or their arguments, as they do to `attach`. Pure.

Ranks of one group may be of several programs, each with a monitor of its own (a trainer, and the
workers of its engine): a rank that waits for the world finds the others below it, and rank 0 at the
store, which that one serves (torch/distributed/rendezvous.py, _create_c10d_store).
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..base.command_words import (
    add_variables,
    has_launcher,
    has_title,
    is_shell,
    mask_numbers,
    number_programs,
)
from ..base.deadline import within
from ..base.launcher_env import number
from ..base.launchers import BY_NAME, DIALECTS, RANK_VARIABLES
from ..base.place import find_place
from ..base.proc import read_stat
from ..base.process_facts import Look
from ..base.process_roles import find_actor
from ..base.rank_facts import JobFacts, RankFacts
from ..base.rank_history import SILENT
from ..diagnosis.process.blocked_syscalls import list_connected_pids
from ..diagnosis.process.helper_processes import has_failed
from ..diagnosis.process.pipe_writers import reads_words_of
from ..diagnosis.process.process_snapshot import find_descendants, merge_looks
from ..diagnosis.process.public_calls import find_group_wait
from ..diagnosis.rendezvous_claims import read_group_values
from ..diagnosis.snapshot import Snapshot
from ..dumps.facts_in_stack import RankLocals, read_rank_locals
from ..evidence.process import exit_code, family, variables_of, walk_up, words_of
from .job_activity import Stillness

if TYPE_CHECKING:
    from ..base.process_facts import Look
    from ..base.rank_facts import RankFacts
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
    several nodes: these have a monitor of their own, and it is none itself. May block.
    """
    members = list(job.members)
    if len(members) != 1 or job.place["launcher"]:
        return False
    (program,) = members
    own = {*(variables_of(program.pid) or {})}
    below = (variables_of(pid) or {} for pid in family([program.pid]))
    ranks = (v for v in below if any(v.get(name) and name not in own for name in RANK_VARIABLES))
    return any(find_place(variables).has_others for variables in ranks)


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
        _make_facts(job, rank, pid, (), status=found[pid], is_dead=True)
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
    return _kind_by_title(words)


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
        found.append(_make_facts(job, rank, pid, seen))
    return found


def _make_facts(
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


_FEWEST = 2  # ranks: one helper alone that has a number is none
# What a program that has started its ranks waits in: for their end, or from one look to the next.
ONLY_WAITS = ("process", "sleep")
# What starts them: multiprocessing's other files are of queues, connections and locks.
_STARTS = re.compile(r"/multiproc?ess(?:ing)?/(?:process|spawn|forkserver|popen_\w+)\.py$")


_VARIABLES_LIMIT = 0.5  # seconds: a process in the kernel may block who reads its variables


def read_numbers_of_started(ranks: Sequence[RankFacts]) -> dict[int, int]:
    """Return by pid the numbers of ranks that their variables give to the processes that the only
    rank has started; {} if it has one itself, or is not alone.
    """
    if len(ranks) != 1 or ranks[0].pid is None:
        return {}
    own = ranks[0].pid
    started = [looks[-1] for looks in ranks[0].children if looks and looks[-1].ppid == own]
    pids = [one.pid for one in started if one.state not in ("Z", "X", "D")]

    def read() -> dict[int, int]:
        environs = {pid: variables_of(pid) for pid in (own, *pids)}
        numbers = {pid: find_rank_number(one or {}) for pid, one in environs.items()}
        known = {pid: given for pid, given in numbers.items() if given is not None}
        return {} if own in known else known or _read_own_variables(started, environs)

    try:
        return within(_VARIABLES_LIMIT, read)
    except TimeoutError:
        return {}


def _read_own_variables(
    started: Sequence[Look], environs: Mapping[int, Mapping[str, str] | None]
) -> dict[int, int]:
    """Return by pid the numbers that variables of the program's own give to what it has started."""
    seen = [one for one in started if one.pid in environs]
    words = add_variables([one.command for one in seen], [environs[one.pid] for one in seen])
    told = number_programs(words)
    return dict(zip((one.pid for one in seen), told.numbers, strict=True)) if told else {}


def find_rank_number(environ: Mapping[str, str]) -> int | None:
    """Return the rank that a process's environment names."""
    # Those of a task of srun's last: it may have started mpirun, which starts the ranks.
    inner_first = sorted(DIALECTS, key=lambda name: BY_NAME[name].is_around)
    numbers = (number(environ, DIALECTS[name].rank) for name in inner_first)
    return next((rank for rank in numbers if rank is not None), None)


def take_spawned_ranks(
    job: JobFacts, seen: Snapshot, given: Mapping[int, int] | None = None
) -> tuple[JobFacts, Snapshot]:
    """Return the job and its ranks, where the only one of a script of the user's own does nothing
    but wait for ranks that it has started: with these in its place. Else what was given. `given`:
    the numbers of what it has started, by pid, that variables tell.
    """
    if job.pipeline or job.world_size != 1 or len(seen.ranks) != 1:
        return job, seen
    (program,) = seen.ranks
    (alone,) = seen.single_ranks.ranks or (None,)
    if alone is None or alone.wait is None or alone.wait.kind not in ONLY_WAITS:
        return job, seen
    ranks = _make_given_ranks(program, given or {}) or _find_ranks(program)
    if not ranks:
        return job, seen
    numbers = tuple(facts.rank for facts in ranks if isinstance(facts.rank, int))
    ranks = [_add_failed_siblings(ranks[0], program), *ranks[1:]]
    return replace(job, world_size=len(ranks), local_ranks=numbers), Snapshot(ranks)


def _add_failed_siblings(rank: RankFacts, program: RankFacts) -> RankFacts:
    """Return a rank that a program has started, with what that has started besides and that has
    failed, as processes beside it.
    """
    pids = {rank.pid, *(looks[-1].pid for looks in rank.children if looks)}
    failed = [
        looks
        for looks in program.children
        if looks and has_failed(looks[-1])
        if looks[-1].ppid == program.pid and looks[-1].pid not in pids
    ]
    beside = tuple(sorted({*rank.beside, *(looks[-1].pid for looks in failed)}))
    return replace(rank, children=(*rank.children, *failed), beside=beside)


def take_ranks_of_group(job: JobFacts, seen: Snapshot) -> tuple[JobFacts, Snapshot]:
    """Return the job and its ranks, with those that make the same group of all below its only rank:
    their frames say their numbers and as many ranks, and they have a connection to its process. Who
    was started with such a one, and like it, is one of those that have not come, where there are
    as many. Else what was given.
    """
    if job.pipeline or len(seen.ranks) != 1:
        return job, seen
    (alone,) = seen.single_ranks.ranks or (None,)
    view = alone.view if alone is not None else None
    if alone is None or view is None or alone.group != "construction":
        return job, seen
    (program,) = seen.ranks
    size = read_group_values(view.frames).get("world_size", 0)
    came = _find_who_came(program, size)
    if not came:
        return job, seen
    missing = [n for n in range(size) if n not in came and n != program.rank]
    came |= _find_who_did_not_come(program, came, missing)
    ranks = (program, *(_make_rank(program, came[number], number) for number in sorted(came)))
    numbers = tuple(sorted(facts.rank for facts in ranks if isinstance(facts.rank, int)))
    return replace(job, world_size=size, local_ranks=numbers), Snapshot(
        sorted(ranks, key=lambda facts: facts.rank)
    )


def _find_who_came(program: RankFacts, size: int) -> dict[int, Sequence[Look]]:
    """Return by number the processes below a rank that make a group of `size` with it."""
    found: dict[int, Sequence[Look]] = {}
    for looks in program.children:
        view = merge_looks(looks)
        if view is None or find_group_wait(view) != "construction":
            continue
        told = read_group_values(view.frames)
        number = told.get("rank", -1)
        is_of_it = told.get("world_size") == size and program.pid in list_connected_pids(view.look)
        if is_of_it and 0 <= number < size and number not in (program.rank, *found):
            found[number] = looks
    return found


def _find_who_did_not_come(
    program: RankFacts, came: Mapping[int, Sequence[Look]], missing: Sequence[int]
) -> dict[int, Sequence[Look]]:
    """Return by number the processes that were started with those that came, and like them, in
    their order: {} where there are more or fewer of them than are missing.
    """
    ours = {looks[-1].pid for looks in came.values()}
    like = {(looks[-1].ppid, _kind_by_look(looks[-1])) for looks in came.values()}
    silent = sorted(
        (
            looks
            for looks in program.children
            if looks and looks[-1].pid not in ours
            if (looks[-1].ppid, _kind_by_look(looks[-1])) in like
        ),
        key=lambda looks: looks[-1].pid,
    )
    return dict(zip(missing, silent, strict=True)) if len(silent) == len(missing) else {}


def _kind_by_look(one: Look) -> str:
    """Return how a process was started, or the title that it gave itself, without numbers."""
    by_title = _kind_by_title(one.command)
    if by_title:
        return by_title
    words = mask_numbers(one.command)
    return "spawn" if _is_started_by_multiprocessing(one) else " ".join(words)


def _kind_by_title(words: Sequence[str]) -> str:
    """Return the title that a process gave itself, without numbers, "" where it has none."""
    return mask_numbers(words)[0] if has_title(words) else ""


def _make_given_ranks(program: RankFacts, given: Mapping[int, int]) -> list[RankFacts]:
    """Return the ranks among what a program has started by their numbers; [] for fewer than two,
    or if two have the same.
    """
    own = [looks for looks in program.children if looks and looks[-1].pid in given]
    made = [_make_rank(program, looks, given[looks[-1].pid]) for looks in own]
    is_told = _FEWEST <= len(made) == len({facts.rank for facts in made})
    return sorted(made, key=lambda facts: facts.rank) if is_told else []


def _find_ranks(program: RankFacts) -> list[RankFacts]:
    """Return the ranks among what a program has started: those that one process has started, and
    whose numbers are those of all of them, one after the other.
    """
    families: dict[int, list[tuple[Sequence[Look], RankLocals]]] = {}
    for looks in program.children:
        if looks and _is_started_by_multiprocessing(looks[-1]):
            told = _read_locals(looks)
            if not told.worker:
                families.setdefault(looks[-1].ppid, []).append((looks, told))
    numbered = {_number(them): [looks for looks, _ in them] for them in families.values()}
    numbered |= _number_programs(program)
    numbers, members = next(((n, members) for n, members in numbered.items() if n), ((), []))
    made = map(_make_rank, itertools.repeat(program), members, numbers)
    return sorted(made, key=lambda facts: facts.rank)


def _number_programs(program: RankFacts) -> dict[tuple[int, ...], list[Sequence[Look]]]:
    """Return by their numbers the programs that another one has started, alike but for these; none
    that get their work from it.
    """
    families: dict[str, list[Sequence[Look]]] = {}
    started = [looks for looks in program.children if looks and looks[-1].ppid == program.pid]
    for looks in started:
        if looks[-1].state not in ("Z", "X") and not is_shell(looks[-1].command):
            families.setdefault(_kind_by_look(looks[-1]), []).append(looks)
    ended = sum(has_failed(looks[-1]) for looks in started)
    found = {
        number_programs([looks[-1].command for looks in members], ended): members
        for members in families.values()
        if not any(reads_words_of(looks[-1], program.pid) for looks in members)
    }
    return {told.numbers: members for told, members in found.items() if told is not None}


def _is_started_by_multiprocessing(one: Look) -> bool:
    frames = one.main.frames if one.main else ()
    return any(_STARTS.search(frame.file) for frame in frames)


def _read_locals(looks: Sequence[Look]) -> RankLocals:
    """Return what the last of these looks tells that shows a stack."""
    return read_rank_locals(next((one for one in reversed(looks) if one.threads), looks[-1]))


def _number(members: Sequence[tuple[Sequence[Look], RankLocals]]) -> tuple[int, ...]:
    """Return the numbers of these processes, () if they are no ranks. Where all but one tell, that
    one has the number that is left.
    """
    told = [one.any_number for _, one in members]
    left = set(range(len(members))) - set(told)
    if len(members) < _FEWEST or told.count(None) > 1 or len(left) != told.count(None):
        return ()
    return tuple(number if number is not None else min(left) for number in told)


def _make_rank(program: RankFacts, looks: Sequence[Look], number: int) -> RankFacts:
    pid = looks[-1].pid
    return replace(
        program,
        rank=number,
        local_rank=number,
        pid=pid,
        looks=tuple(looks),
        children=find_descendants(program, pid),
        announced="",
        last_line="",
        last_line_at=None,
        collectives=(),
        environment={},
    )
