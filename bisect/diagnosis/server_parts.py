"""Who is to blame where ranks of an inference server wait for a part of it that is no rank: the
engine, or the API server, that stands still itself; and where they wait for a process that was
started beside them. Pure.

A graph has a rank answer for each process, and what stands beside the ranks is seen with the first
of them. That one is innocent where all that it waits for is such a part.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ..base.command_words import has_title, name_program, starts_for_multiprocessing
from ..base.identity import ProcessId, RankId, UnknownRank
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Look
from ..base.process_roles import find_server_process, is_dask_worker
from ..base.rank_facts import RankFacts
from ..base.verdict_facts import Edge, Verdict, Where
from .call_site import find_call
from .case import Case
from .causes.workers import CHILD_DIED
from .exit_words import describe_exit_status
from .process.blocked_syscalls import CHILD_WAIT_CALLS, POLL_CALLS, READ_CALLS
from .process.frames import format_innermost_frame, frame_owner, innermost_python_frame
from .process.helper_processes import (
    asks_its_cluster,
    find_dead_helper,
    is_halted,
    is_kept_by_others,
)
from .process.process_snapshot import merge_looks
from .process.request_threads import waits_for_others
from .proof_of_hang import have_all_asked, waits_for_requests
from .single_ranks import is_gone
from .standing_ranks import look_in_one_place
from .wait_graph import WaitGraph

_FEWEST = 2  # ranks: of one alone that looks for something nothing tells who is to give it
_LONGEST_CHAIN = 8  # edges from the part on


def blame_part_of_server(case: Case, graph: WaitGraph, verdict: Verdict) -> Verdict:
    """Return the verdict; where its culprits wait for a part of their server that is no rank, or
    for a process that was started beside the ranks, with that in their place, as a process without
    a number.
    """
    part = _find_awaited_part(case, graph, verdict)
    view = merge_looks(part.looks) if part is not None else None
    if part is None or view is None:
        return verdict
    facts = case.by_rank[part.rank]
    pid, innocent = part.looks[-1].pid, verdict.ranks.culprit
    who = UnknownRank(facts.host, pid)
    call, wait = find_call(view, case.job) or None, graph.waits.get((part.rank, pid))
    ranks = replace(
        verdict.ranks,
        culprit=(who,),
        stuck=(*(r for r in verdict.ranks.stuck if r not in innocent), who),
        waiting=tuple(sorted({*verdict.ranks.waiting, *innocent})),
    )
    return replace(
        verdict,
        ranks=ranks,
        where=(Where(who, facts.host, pid, None, "", None, call, wait, part.role),),
        call=call,
        frame=format_innermost_frame(view.frames) or None,
        waits_for=wait or verdict.waits_for,
        candidates=(),
        chain=_make_chain(graph, verdict, ProcessId(facts.host, part.first)),
    )


def blame_dead_helper(case: Case, verdict: Verdict) -> Verdict:
    """Return the verdict; where its culprits wait for what a process beside the ranks was to give
    that has died, with that in their place, as a process without a number: a guess, where nobody
    else is known that could give it.
    """
    looks = find_dead_helper(case.ranks)
    culprits = verdict.ranks.culprit
    if not looks or verdict.cause is None or verdict.cause.id != CHILD_DIED:
        return verdict
    is_rank_missing = bool(case.absent) or any(map(is_gone, case.ranks))
    if is_rank_missing or not all(_waits_for_a_giver(case, rank) for rank in culprits):
        return verdict
    dead, host = looks[-1], case.ranks[0].host
    who = UnknownRank(host, dead.pid)
    ranks = replace(
        verdict.ranks,
        culprit=(who,),
        stuck=tuple(rank for rank in verdict.ranks.stuck if rank not in culprits),
        waiting=tuple(sorted({*verdict.ranks.waiting, *culprits})),
    )
    how = describe_exit_status(dead.status).removeprefix("was ") if dead.status else ""
    where = Where(who, host, dead.pid, None, "", None, role=_name_role(dead), ended=how)
    return replace(
        verdict,
        ranks=ranks,
        where=(where,),
        call=None,
        frame=None,
        waits_for=None,
        candidates=(),
    )


def _waits_for_a_giver(case: Case, rank: RankId) -> bool:
    """Return whether a rank reads from a pipe of which no other living rank that is to blame has
    the end, waits for a semaphore of processes that nobody is known to have, or for what the
    process that has started it is to send.
    """
    found = case.rank_waits.get(rank)
    if found is None or found.wait is None or found.view is None:
        return False
    wait, call = found.wait, found.view.call
    if wait.kind == "socket" and wait.pid is not None and wait.pid == found.view.look.ppid:
        return True
    if wait.kind == "pipe":
        return call is not None and call.name in READ_CALLS | POLL_CALLS
    futex = call.futex if call is not None else None
    return wait.kind == "lock" and wait.pid is None and futex is not None and bool(futex.file)


@dataclass(frozen=True)
class _Part:
    """A process to blame in place of ranks."""

    rank: RankId  # with which it was seen
    looks: Sequence[Look]
    role: str
    first: int  # the pid of the process that the ranks wait for, which waits for this one


def _find_awaited_part(case: Case, graph: WaitGraph, verdict: Verdict) -> _Part | None:
    """Return the one process besides the ranks that all culprits wait for."""
    awaited = {one.waits_for.pid if one.waits_for is not None else None for one in verdict.where}
    if not verdict.ranks.culprit:
        return _find_asked_starter(case)
    if len(awaited) != 1 or len(verdict.where) != len(verdict.ranks.culprit):
        return None
    if awaited == {None}:
        return _find_starter_of_pollers(case)
    (pid,) = awaited
    for facts in case.ranks:
        if pid in facts.beside:
            meets = any(
                one.waits_for and one.waits_for.kind == "collective" for one in verdict.where
            )
            return _follow(pid, facts, graph, {one.pid for one in case.ranks}, meets)
        for looks in facts.children:
            if looks and looks[-1].pid == pid:
                role = find_server_process(looks[-1].command)
                if role is not None and role.is_spawned and not role.is_rank:
                    engine = _Part(facts.rank, looks, role.name, pid)
                    return _find_server_above(pid, facts, graph) or engine
                return _find_titled_part(pid, case, graph) if role is None else None
    return None


def _find_asked_starter(case: Case) -> _Part | None:
    """Return the process that has started all ranks and that all of them, two at least, have asked,
    where it stands still and waits for nobody else: nothing is to come that it has not got.
    """
    for facts in case.ranks:
        for looks in facts.children:
            view = merge_looks(looks)
            if view is None or view.running or looks[-1].pid not in facts.beside:
                continue
            if len(case.ranks) >= _FEWEST and have_all_asked(case.snapshot, [view.look]):
                return _Part(facts.rank, looks, _name_role(view.look), view.look.pid)
    return None


def _find_starter_of_pollers(case: Case) -> _Part | None:
    """Return the process that has started all living ranks, two at least, where these look for
    something again and again in one place, and it stands in the job's own code itself: it is in
    none of them, and who waits for the ends of its ranks hands them no work.
    """
    living = [facts for facts in case.ranks if not is_gone(facts)]
    parents = {facts.parent for facts in living}
    if len(living) < _FEWEST or len(parents) != 1 or not look_in_one_place(case, living):
        return None
    (pid,) = parents
    for facts in living:
        looks = facts.looks_at(pid)
        view = merge_looks(looks)
        if view is None or view.call_name in CHILD_WAIT_CALLS or waits_for_requests(view.look):
            continue
        inner = innermost_python_frame(view.frames)
        if inner is None or inner.awaits_ends:
            continue
        if frame_owner(inner, case.job.package) == "user":
            return _Part(facts.rank, looks, _name_role(view.look), pid)
    return None


def _find_server_above(engine: int, facts: RankFacts, graph: WaitGraph) -> _Part | None:
    """Return the API server that an engine waits for, None if it does not."""
    wait = graph.waits.get((facts.rank, engine))
    for looks in facts.children:
        if looks and wait is not None and looks[-1].pid == wait.pid:
            role = find_server_process(looks[-1].command)
            if role is not None and role.is_server:
                return _Part(facts.rank, looks, role.name, engine)
    return None


def _find_titled_part(first: int, case: Case, graph: WaitGraph) -> _Part | None:
    """Return the last of the processes that wait for one another from `first` on, below a program
    that is no rank of several, where each has given itself a title (setproctitle) and the last one
    is stopped, or kept by what is none of them: a server of the user's own consists of such parts.
    One that waits for a program it has started, and that for it, is the last one as well, and so is
    a worker of Dask whose task asks its cluster while no other one has a task that stands still by
    itself. None for any other one.
    """
    (facts, *others), links = case.ranks, graph.list_awaited()
    known = {looks[-1].pid: looks for looks in facts.children if looks}
    way, pid = list[int](), first
    while pid in known and pid not in way:
        way.append(pid)
        following = links.get(ProcessId(facts.host, pid), ())
        pid = next((one.pid for one in following if one.host == facts.host), 0)
    helper = known[way[-1]][-1] if len(way) > 1 else None
    is_mutual = helper is not None and pid == helper.ppid == way[-2] and not _is_titled(helper)
    if is_mutual:
        way.pop()
    parts = [pid for pid in way if _is_titled(known[pid][-1])]
    view = merge_looks(known[way[-1]]) if way else None
    if others or len(parts) < len(way) or view is None or view.running:
        return None
    if waits_for_requests(view.look):
        return None
    wait = graph.waits.get((facts.rank, way[-1]))
    is_alone = is_mutual or is_halted(view.look) or asks_its_cluster(view.look)
    if not (is_alone or is_kept_by_others(wait, {*known, facts.pid})):
        return None
    return _Part(facts.rank, known[way[-1]], _name_role(view.look), first)


def _is_titled(look: Look) -> bool:
    return has_title(look.command) or is_dask_worker(look.command)  # whose title has its address


def _follow(
    first: int, facts: RankFacts, graph: WaitGraph, ranks: Collection[int | None], meets: bool
) -> _Part | None:
    """Return the last of the processes beside the ranks that wait for one another; None if that one
    moves, or waits for a rank in turn. Where a rank `meets` it in a collective, one that waits for
    requests is not there, and to blame for that.
    """
    known = {looks[-1].pid: looks for looks in facts.children if looks}
    known = {pid: looks for pid, looks in known.items() if pid in facts.beside}
    pid, passed = first, set[int]()
    while pid not in passed:
        passed.add(pid)
        wait = graph.waits.get((facts.rank, pid))
        if wait is not None and wait.pid in known and _is_the_same(known, pid, wait.pid):
            pid = wait.pid
    view = merge_looks(known[pid]) if pid in known else None
    if view is None or view.running:
        return None
    if waits_for_others(view, ranks) and not (meets and waits_for_requests(view.look)):
        return None
    return _Part(facts.rank, known[pid], _name_role(view.look), first)


def _is_the_same(known: Mapping[int, Sequence[Look]], pid: int, other: int) -> bool:
    """Return whether another process is a part of the same server, and not a program that this has
    started to help it: forked or spawned by multiprocessing, with a title, or beside it.
    """
    one, awaited = known[pid][-1], known[other][-1]
    words = awaited.command
    if awaited.ppid != pid or words == one.command or starts_for_multiprocessing(words):
        return True
    return has_title(words)


def _name_role(look: Look) -> str:
    """Return what a process is called by which it is known: its title, or its program."""
    role, words = find_server_process(look.command), look.command
    if role is not None or not words:
        return role.name if role is not None else look.name
    if has_title(words) or is_dask_worker(words):
        return words[0]
    return name_program(words) or look.name


def _make_chain(graph: WaitGraph, verdict: Verdict, part: ProcessId) -> tuple[Edge, ...]:
    """Return the way from who waits to the part of the server, and on from there."""
    name = next((node.name for node in graph.nodes.values() if node.process == part), "")
    begin = next((n for n, edge in enumerate(graph.edges) if edge.target == name), None)
    way: list[Edge] = []
    if begin is not None:
        thing = graph.edges[begin].source
        way = [*[edge for edge in graph.edges if edge.target == thing][:1], graph.edges[begin]]
    for _ in range(_LONGEST_CHAIN):
        following = next((edge for edge in graph.edges if edge.source == name), None)
        if following is None or following in way:
            break
        way.append(following)
        name = following.target
    return tuple(way) or verdict.chain
