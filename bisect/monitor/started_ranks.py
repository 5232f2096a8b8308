"""Ranks among what a program of the user's own has started, by multiprocessing, by os.fork() or as
programs with a number each, and that call nothing that the watch knows: their stacks tell which
numbers they have, or their variables and arguments. Pure, but for the reading of variables.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..base.command_words import (
    has_title,
    is_shell,
    mask_numbers,
    number_programs,
)
from ..base.deadline import within
from ..base.launcher_env import number
from ..base.launchers import BY_NAME, DIALECTS
from ..base.process_facts import Look
from ..base.rank_facts import JobFacts, RankFacts
from ..diagnosis.process.blocked_syscalls import (
    CHILD_WAIT_CALLS,
    list_awaited_pids,
    list_connected_pids,
)
from ..diagnosis.process.helper_processes import has_failed
from ..diagnosis.process.pipe_writers import reads_words_of
from ..diagnosis.process.process_snapshot import find_descendants, main_kernel, merge_looks
from ..diagnosis.process.public_calls import find_group_wait
from ..diagnosis.rendezvous_claims import read_group_values
from ..diagnosis.snapshot import Snapshot
from ..dumps.facts_in_stack import RankLocals, read_rank_locals
from ..evidence.process import variables_of

if TYPE_CHECKING:
    from ..base.process_facts import Look
    from ..base.rank_facts import RankFacts


_FEWEST = 2  # ranks: one helper alone that has a number is none
# What a program that has started its ranks waits in: for their end, or from one look to the next.
ONLY_WAITS = ("process", "sleep")
_OWN_TERMINAL = "/dev/ptmx"  # the end of who has made a terminal
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
    variables = [environs[one.pid] for one in seen]
    told = number_programs([one.command for one in seen], environs=variables)
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
    if alone is None or alone.wait is None:
        return job, seen
    # A terminal of its own (pty(7)), in which what it has started prints.
    shows = alone.wait.kind == "device" and alone.wait.detail.startswith(_OWN_TERMINAL)
    if alone.wait.kind not in ONLY_WAITS and not shows:
        return job, seen
    ranks = _make_given_ranks(program, given or {}) or _find_ranks(program)
    if not ranks:
        return job, seen
    numbers = tuple(facts.rank for facts in ranks if isinstance(facts.rank, int))
    ranks = [_add_what_is_around(ranks, program), *ranks[1:]]
    return replace(job, world_size=len(ranks), local_ranks=numbers), Snapshot(ranks)


def _add_what_is_around(ranks: Sequence[RankFacts], program: RankFacts) -> RankFacts:
    """Return the first of the ranks that a program has started, with what is around them as
    processes beside it: what that program has started besides and that has failed, what stands
    between it and the ranks (an engine above its workers), and itself where a rank waits for it.
    """
    rank = ranks[0]
    inside = {one.pid for one in ranks} | {
        looks[-1].pid for one in ranks for looks in one.children if looks
    }
    family = {looks[-1].pid: looks for looks in program.children if looks}
    chosen = {
        pid: looks
        for pid, looks in family.items()
        if has_failed(looks[-1]) and looks[-1].ppid == program.pid
    }
    starter = rank.looks[-1].ppid
    while starter in family and starter not in chosen:
        chosen[starter] = family[starter]
        starter = family[starter][-1].ppid
    if program.looks and _is_asked_by(program.looks[-1], ranks):
        chosen[program.looks[-1].pid] = program.looks
    added = {pid: looks for pid, looks in chosen.items() if pid not in inside}
    beside = tuple(sorted({*rank.beside, *added}))
    return replace(rank, children=(*rank.children, *added.values()), beside=beside)


def _is_asked_by(program: Look, ranks: Sequence[RankFacts]) -> bool:
    """Return whether a rank waits for what a program is to send over a connection to an address,
    and that does not only wait for the ends of its ranks: it has the other end of each of their
    pipes all the same.
    """
    task = main_kernel(program)
    call = task.syscall if task is not None else None
    if call is None or call.name in CHILD_WAIT_CALLS:
        return False
    waiting = [one.looks[-1] for one in ranks if program.pid in list_awaited_pids(one.looks[-1])]
    return any(
        program.pid in socket.peer_pids and bool(socket.peer or socket.local)
        for look in waiting
        for socket in look.sockets
    )


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
    by_title = kind_by_title(one.command)
    if by_title:
        return by_title
    words = mask_numbers(one.command)
    return "spawn" if _is_started_by_multiprocessing(one) else " ".join(words)


def kind_by_title(words: Sequence[str]) -> str:
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
    """Return the ranks among what a program has started: those that one process has started, by
    multiprocessing or by os.fork(), and whose numbers are those of all of them, one after the
    other.
    """
    families: dict[int, list[tuple[Sequence[Look], RankLocals]]] = {}
    for looks in program.children:
        if looks and (_is_started_by_multiprocessing(looks[-1]) or looks[-1].is_forked):
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
    pid, has_ended = looks[-1].pid, looks[-1].state in ("Z", "X")
    return replace(
        program,
        alive=not has_ended,
        left=has_ended,
        status=looks[-1].status if has_ended else None,
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
