"""Ranks that stand still where nothing says who waits for whom: where they stand, and which of them
wait for nobody by name. Pure.

Whoever looks for something again and again, or hears whether anybody connects, has no wait that
says for whom it is; beside a rank that is kept by a lock, a service, a pipe or a long sleep, it
most likely waits for that one to go on.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ..base.addresses import port_of
from ..base.identity import RankId
from ..base.library_functions import Role, find_role
from ..base.process_facts import Frame, Look
from ..base.rank_facts import NOTHING_MOVES, RankFacts
from ..base.verdict_facts import WAITS_FOR_RANKS, Wait
from ..base.words import format_ranks
from .case import Case
from .collectives.peer_calls import find_handle
from .process.blocked_syscalls import is_open_to_peers, list_awaited_pids
from .process.blocking_reason import ProcessContext, find_blocking_reason_of_child
from .process.frames import format_innermost_frame, frame_owner, job_frames
from .process.public_calls import GroupWait, find_group_wait
from .process.time_limits import is_asleep, read_time_left, waits_anew
from .rank_connections import ShortFlow, find_short_flow, is_untaken
from .rank_waits import POLLS, RankWait, is_anonymous
from .single_ranks import is_gone
from .wait_graph import WaitGraph


class StandingPlace(NamedTuple):
    """Where a rank stands still, to be compared with where others do."""

    kind: str  # of its wait
    may_be_for_peers: bool
    frames: tuple[object, ...]
    call: str = ""  # of torch.distributed in which it meets others


def find_standing_place(case: Case, facts: RankFacts, with_lines: bool) -> StandingPlace | None:
    """Return the place where a rank stands, None if no look shows it."""
    found = case.rank_waits[facts.rank]
    if found.view is None:
        return None
    frames = job_frames(found.view.frames, case.job.package)
    wait = found.wait or Wait("itself", "")
    if wait.kind == "itself" and _polls_there(facts, found.view.frames):
        wait = Wait("sleep", "")
    if found.transfer is not None or wait.kind == "collective":
        call = found.place.removeprefix("collective ")
        call = found.transfer.call if found.transfer is not None else call
        if find_handle(found.view.frames) is not None:  # of some it is known for whom, by chance
            call = format_innermost_frame(found.view.frames)
        places = tuple((f.file, f.name, with_lines and f.line) for f in frames)
        return StandingPlace("collective", True, places, call)
    if wait.kind not in POLLS:
        places = tuple((f.file, f.name, with_lines and f.line) for f in frames)
        may_be = is_anonymous(wait) or is_open_to_peers(wait, found.view.call)
        # In a call by which all meet at the store; a key alone may be one rank's for one other.
        may_be = may_be or (
            wait.kind == "store" and find_role(found.view.frames, Role.ASKS_STORE) is not None
        )
        # Whoever started a rank started the others too, and may hear them one after another.
        may_be = may_be or (wait.pid == found.view.look.ppid and not wait.host)
        return StandingPlace(wait.kind, may_be, places)
    # Each look at a loop shows another line of it, and another function that it calls.
    own = [n for n, f in enumerate(frames) if frame_owner(f, case.job.package) in ("user", "step")]
    outer = frames[own[0] :] if own else frames
    places = tuple(
        (f.file, f.name, with_lines and number > 0 and f.line) for number, f in enumerate(outer)
    )
    return StandingPlace(wait.kind, is_anonymous(wait), places)


def _polls_there(facts: RankFacts, frames: Sequence[Frame]) -> bool:
    """Return whether a rank that was mostly caught at work slept in the same functions at one look:
    on a machine that has too much to do, who sleeps for a moment waits for a processor for longer.
    """
    functions = _name_functions([frame for frame in frames if not frame.native])
    slept = [one.main for one in facts.looks if one.main is not None and is_asleep(one)]
    return any(
        _name_functions([frame for frame in one.frames if not frame.native]) == functions
        for one in slept
    )


def find_few_in_ring(case: Case, candidates: Sequence[RankId]) -> tuple[RankId, ...]:
    """Return those of `candidates` that stand in other functions of the job's own than more than
    half of all ranks; () where all do, or none, or where the line from which they part stands below
    a condition by rank: there they have another part in the program. Each of them waits for a rank
    at the other end of a connection.
    """
    living = [r for r in case.ranks if not (r.finished or is_gone(r))]
    waits = [case.rank_waits[rank].own_wait for rank in candidates if rank in case.rank_waits]
    if not all(one is not None and one.kind == "socket" and one.rank is not None for one in waits):
        return ()
    paths: dict[RankId, tuple[Frame, ...]] = {}  # outermost first
    for facts in living:
        view = case.rank_waits[facts.rank].view
        frames = job_frames(view.frames, case.job.package) if view is not None else ()
        own = [f for f in frames if frame_owner(f, case.job.package) in ("user", "step")]
        paths[facts.rank] = tuple(own[::-1])
    ((usual, count),) = Counter(map(_name_functions, paths.values())).most_common(1) or [((), 0)]
    few = tuple(r for r in candidates if _name_functions(paths.get(r, ())) != usual)
    if not usual or 2 * count <= len(living) or not 0 < len(few) < len(candidates):
        return ()
    different = {(*_name_functions(p), *(f.condition for f in p)): p for p in paths.values()}
    theirs = [path for path in different.values() if _name_functions(path) == usual]
    others = [paths[rank] for rank in few]
    return () if any(_part_by_condition(a, b) for a in others for b in theirs) else few


def describe_loops(ranks: Sequence[RankId]) -> str:
    """Return in words why none of ranks is named that hear one another."""
    return (
        f"{format_ranks(ranks)} hear several connections each, and wait for one another by them:"
        " which one is to send next is not seen"
    )


def find_awaited_server(case: Case, candidates: Sequence[RankId]) -> RankId | None:
    """Return the one of the candidates at whose end of a connection all others of them wait, while
    it waits for its peers in a collective: likely it was to serve them before. Of two it is so only
    where it has not accepted the connection. None where it is not so.
    """
    if (hub := _find_hub(case, candidates)) is not None:
        return hub
    found = [case.rank_waits[rank] for rank in candidates if rank in case.rank_waits]
    asked = {
        one.rank: one.own_wait.rank
        for one in found
        if one.own_wait and one.own_wait.kind == "socket"
    }
    servers = [one for one in found if one.rank not in asked]
    if len(servers) != 1 or not asked or len(found) < len(candidates):
        return None
    (server,) = servers
    is_awaited = server.waits_for_peers and {*asked.values()} == {server.rank}
    is_told = len(candidates) >= _FEWEST_OF_A_STAR or all(
        _waits_untaken(one, server) for one in found if one is not server
    )
    return server.rank if is_awaited and is_told else None


def _find_hub(case: Case, candidates: Sequence[RankId]) -> RankId | None:
    """Return the one of the candidates that hears several ranks, and has not said whom it means,
    while each of them waits for it alone: which of them is in its ring is chance. None where it is
    not so.
    """
    waits = {rank: one.own_wait for rank, one in case.rank_waits.items() if one.own_wait}
    pids = {(facts.host, facts.pid): facts.rank for facts in case.ranks}
    for facts in case.ranks:
        wait = waits.get(facts.rank)
        if facts.rank not in candidates or wait is None or wait.pid is None:
            continue
        named = {wait.pid, *wait.others}
        if facts.looks:  # whoever polls hears all of them
            named |= list_awaited_pids(facts.looks[-1])
        heard = {pids.get((facts.host, pid)) for pid in named}
        alone = (one for r in heard if r is not None and (one := waits.get(r)) and not one.others)
        if 2 <= sum(one.kind == "socket" and one.rank == facts.rank for one in alone) == len(heard):
            return facts.rank if {*candidates} <= {facts.rank, *heard} else None
    return None


def _waits_untaken(one: RankWait, server: RankWait) -> bool:
    """Return whether a rank waits at a connection that a server has not accepted."""
    call = one.view.call if one.view is not None else None
    if call is None or server.view is None:
        return False
    look = server.view.look
    return any(
        each.socket is not None and is_untaken(each.socket, look) for each in call.descriptors
    )


def look_in_one_place(case: Case, ranks: Sequence[RankFacts]) -> bool:
    """Return whether all of these look for something again and again in one place."""
    places = {find_standing_place(case, one, with_lines=True) for one in ranks}
    (place,) = places if len(places) == 1 else (None,)
    return place is not None and place.kind in POLLS and place.may_be_for_peers


def await_their_starter(case: Case, ranks: Sequence[RankFacts]) -> bool:
    """Return whether all of these read what the process that started them is to send, over a pipe
    or a pair of sockets, and that is no rank.
    """
    pids = {facts.pid for facts in case.ranks}
    parents = {facts.parent for facts in ranks}
    waits = [case.rank_waits[facts.rank].own_wait for facts in ranks]
    awaited = {
        wait.pid if wait is not None and wait.kind in ("socket", "pipe") else None for wait in waits
    }
    return len(parents) == 1 and awaited == parents and not awaited & (pids | {0})


def describe_asked_starter(case: Case, ranks: Sequence[RankId]) -> str:
    """Return in words that all of these ranks, two at least, wait for the answer of the process
    that has started them, to which each has connected by a network address; "" if that is not so.
    """
    there = [facts for rank in ranks if (facts := case.facts(rank)) is not None and facts.looks]
    waits = [case.rank_waits[facts.rank].own_wait for facts in there]
    is_address = all(wait is not None and ":" in wait.what for wait in waits)
    if len(there) < max(2, len(ranks)) or not is_address or not await_their_starter(case, there):
        return ""
    first = waits[0]
    assert first is not None
    who = f"{first.process or 'process'} ({first.pid})"
    return (
        f"all {len(ranks)} ranks wait for an answer of {who}, which has started them: none is to "
        f"blame. `py-spy dump --pid {first.pid}` shows what it is in"
    )


_FEWEST_OF_A_STAR = 3  # ranks: of two that wait for each other nothing tells which is wrong


def _name_functions(path: Sequence[Frame]) -> tuple[tuple[str, str], ...]:
    return tuple((frame.file, frame.name) for frame in path)


def _part_by_condition(one: Sequence[Frame], other: Sequence[Frame]) -> bool:
    """Return whether the line from which two paths part, in one or the other, stands below a
    condition by which only some ranks come.
    """
    pairs = zip(_name_functions(one), _name_functions(other), strict=False)
    same = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
    return same == 0 or any(path[same - 1].condition for path in (one, other))


_LONGEST_PAUSE = 60.0  # seconds: whoever sleeps for longer in one go does not look again and again


def split_by_named_wait(
    case: Case, ranks: Sequence[RankId]
) -> tuple[tuple[RankId, ...], tuple[RankId, ...]]:
    """Return those of `ranks` that wait for nobody by name, and those whose wait has a name; who is
    gone, or waits in any other way, is neither.
    """
    living = [facts for rank in ranks if (facts := case.facts(rank)) and not is_gone(facts)]
    unnamed = tuple(
        r.rank
        for r in living
        if _looks_again(r)
        or hears_who_comes(case, r.rank)
        or _asks_own_server(case, r)
        or _meets_processes(case, r)
    )
    named = tuple(r.rank for r in living if r.rank not in unnamed and _has_reason(case, r))
    return unnamed, named


def find_awaited_of_alike(
    case: Case, graph: WaitGraph, candidates: Sequence[RankId]
) -> tuple[RankId, ...]:
    """Return those of `candidates` for whom other ranks wait, or for a process of theirs, where all
    of them wait for nobody by name and the others of them are awaited by nobody; () where it is not
    so.
    """
    unnamed, _ = split_by_named_wait(case, candidates)
    awaited = tuple(rank for rank in candidates if rank in graph.awaited)
    is_told = len(unnamed) == len(candidates) > len(awaited)
    return awaited if is_told else ()


# A Barrier that a manager serves: all its parties are processes (multiprocessing/managers.py).
_MANAGER = re.compile(r"/multiproc?ess(?:ing)?/managers\.py$")


def _meets_processes(case: Case, facts: RankFacts) -> bool:
    """Return whether a rank waits at a manager's Barrier: for those that have not come to it."""
    view = case.rank_waits[facts.rank].view
    frames = view.frames if view is not None else ()
    return any(_MANAGER.search(f.file) and f.name == "BarrierProxy.wait" for f in frames)


def _looks_again(facts: RankFacts) -> bool:
    """Return whether a rank sleeps for a short time, again and again."""
    if not facts.looks or not is_asleep(facts.looks[-1]):
        return False
    left = [seconds for look in facts.looks if (seconds := read_time_left(look)) is not None]
    anew = any(waits_anew(*pair) for pair in pairwise(facts.looks))
    return anew and max(left) <= _LONGEST_PAUSE


def hears_who_comes(case: Case, rank: RankId) -> bool:
    """Return whether a rank waits for anybody to connect, or to open a pipe with a name: those of
    another host cannot, even where they see its name in a shared folder (fifo(7)). Where a thread
    of it takes connections, its main thread may wait for what these bring.
    """
    found, facts = case.rank_waits[rank], case.facts(rank)
    call = found.view.call if found.view is not None else None
    if found.view is not None and is_anonymous(found.wait) and not found.waits_for_peers:
        return _takes_connections(found.view.look)
    if found.wait is None or call is None or not is_open_to_peers(found.wait, call):
        return False
    is_alone = facts is None or all(r.host != facts.host for r in case.ranks if r.rank != rank)
    return not (is_alone and any(one.kind == "fifo" for one in call.descriptors))


def find_missing_at_store(case: Case, candidates: Sequence[RankId]) -> tuple[RankId, ...]:
    """Return the ranks that wait in collectives, where all `candidates`, more than these, wait for
    a key of the store in one place, or look into the store again and again there; () where it is
    not so: a guess, that these have not put into the store what the others wait for.
    """
    rest = [r for r in case.ranks if not (r.finished or is_gone(r) or r.rank in candidates)]
    asking = [
        facts for rank in candidates if (facts := case.facts(rank)) and _asks_store(case, facts)
    ]
    if not rest or not len(rest) < len(asking) == len(candidates):
        return ()
    # A loop stands now in one line of its function, now in another one.
    views = [case.rank_waits[facts.rank].view for facts in asking]
    frames = [job_frames(v.frames, case.job.package) if v is not None else () for v in views]
    python = [[(f.file, f.name, f.line) for f in one if not f.native] for one in frames]
    places = {(one[0][:2], *one[1:]) if one else () for one in python}
    waits = [case.rank_waits[facts.rank] for facts in rest]
    if len(places) > 1 or any(facts.moved for facts in rest):
        return ()
    meets = all(one.waits_for_peers and _meets_in(one) == "collective" for one in waits)
    return tuple(facts.rank for facts in rest) if meets else ()


def _meets_in(found: RankWait) -> GroupWait | None:
    return find_group_wait(found.view) if found.view is not None else None


def _asks_store(case: Case, facts: RankFacts) -> bool:
    """Return whether a rank waits for a key of a store, or sends something to the store again and
    again while it sleeps in between: to MASTER_PORT, or to where a thread of torch's serves one.
    """
    found, looks = case.rank_waits[facts.rank], [k for k in facts.looks if k.sockets]
    if found.own_wait is not None and found.own_wait.kind == "store":
        return _meets_in(found) != "construction"
    if not looks or not is_asleep(looks[-1]):
        return False
    served = case.snapshot.single_ranks.processes.stores.items()
    ports = {port for process, ports in served if process.host == facts.host for port in ports}
    ports |= {facts.environment.get("MASTER_PORT", "")} - {""}
    sent = {s.inode: s.sent for s in looks[0].sockets if s.sent is not None}
    return any(
        port_of(s.peer) in ports and s.inode in sent and (s.sent or 0) > sent[s.inode]
        for s in looks[-1].sockets
    )


def hears_several(found: RankWait) -> bool:
    """Return whether a rank waits for any of several connections."""
    return found.own_wait is not None and found.own_wait.is_for_any


def wait_for_others(case: Case, ranks: Sequence[RankId]) -> bool:
    """Return whether a job stands still, and each of these ranks waits in a call that ends by what
    others send.
    """
    waits = [case.rank_waits.get(rank) for rank in ranks]
    return case.job.ended in NOTHING_MOVES and all(
        one is not None
        and (
            one.waits_for_peers
            or (one.own_wait is not None and one.own_wait.kind in ("socket", *WAITS_FOR_RANKS))
        )
        for one in waits
    )


def _asks_own_server(case: Case, facts: RankFacts) -> bool:
    """Return whether a rank waits for a process of its own that takes connections, and that waits
    for nobody by name either: a manager's queue, into which another rank is to put.
    """
    wait = case.rank_waits[facts.rank].own_wait
    served = (looks for looks in facts.children if looks and wait and looks[-1].pid == wait.pid)
    looks = next(served, ())
    if not looks or not _takes_connections(looks[-1]):
        return False
    context = ProcessContext(facts, case.snapshot.single_ranks.processes)
    return is_anonymous(find_blocking_reason_of_child(looks, context))


def _takes_connections(look: Look) -> bool:
    """Return whether a thread of a process waits for connections to come."""
    calls = [task.syscall for task in look.kernel if task.syscall is not None]
    sockets = [one.socket for call in calls for one in call.descriptors]
    return any(socket is not None and socket.state == "LISTEN" for socket in sockets)


def _has_reason(case: Case, facts: RankFacts) -> bool:
    """Return whether the wait of a rank is for something that has a name, or is one long sleep."""
    found = case.rank_waits[facts.rank]
    if found.wait is None or found.waits_for_peers:
        return False
    if facts.looks and is_asleep(facts.looks[-1]):
        return (read_time_left(facts.looks[-1]) or 0.0) > _LONGEST_PAUSE
    return not is_anonymous(found.wait)


_FUNCTIONAL = "torch/distributed/_functional_collectives.py"


def is_functional(found: RankWait) -> bool:
    """Return whether a rank waits in a collective of a mesh or a group that no frame names."""
    frames = found.view.frames if found.view is not None else ()
    return any(frame.file.endswith(_FUNCTIONAL) for frame in frames)


def find_short_receiver(
    ranks: Sequence[RankFacts], waits: Mapping[RankId, RankWait]
) -> ShortFlow | None:
    """Return by how much less a rank was handed than all others, that stands in a collective while
    another one waits for it to take a message, or for what no look names: on a machine that has too
    much to do native frames are not read in time. None where it is not so.
    """
    for rank, found in sorted(waits.items(), key=lambda one: str(one[0])):
        sends, wait = found.transfer, found.own_wait
        if sends is None:
            may_send = not found.waits_for_peers and wait is not None and wait.kind == "futex"
        else:
            may_send = not sends.receives
        flow = find_short_flow(ranks, rank) if may_send else None
        if flow is None or flow.receiver not in waits:
            continue
        peer = waits[flow.receiver]
        is_it = sends is None or sends.peer == flow.receiver
        if is_it and peer.waits_for_peers and peer.transfer is None:
            return flow
    return None
