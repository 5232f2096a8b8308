"""Each rank by itself, as its own looks show it: why its process is blocked, before it is compared
with the others (rank_waits.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import NamedTuple

from ..base.identity import ProcessId, RankId
from ..base.lazy_dataclass import dataclass
from ..base.library_functions import Role, find_role
from ..base.process_facts import Frame, Look, Thread
from ..base.process_roles import LONGEST_NAME, TITLE, find_actor, is_service, runs_method
from ..base.rank_facts import RankFacts
from ..base.verdict_facts import Wait, WaitKind
from .process.actor_waits import find_asked_actor, waits_for_ray
from .process.blocking_reason import HeldLock, ProcessContext, find_blocking_reason_in
from .process.frames import format_frame, format_innermost_frame
from .process.loop_waits import hears_itself_alone, runs_event_loop
from .process.process_snapshot import (
    ProcessSnapshot,
    ProcessTable,
    build_process_table,
    merge_looks,
)
from .process.public_calls import (
    find_builders,
    find_group_call,
    find_group_wait,
    find_thread_in_collective,
    waits_for_unknown_builder,
)
from .process.remote_calls import (
    Worker,
    choose_server,
    find_awaited_future,
    find_meeting_of_workers,
    find_remote_call,
    find_workers,
    list_servers,
    read_called,
    stands_in_remote_calls,
)
from .thread_edges import stands_inside

_MOST_DIGITS = 7  # of a WORLD_SIZE: one beyond is a typing error


@dataclass(frozen=True)
class SingleRank:
    """One rank before it is compared with the others."""

    facts: RankFacts
    wait: Wait | None
    view: ProcessSnapshot | None = None  # None for one that is gone, or that no look found
    # construction, collective, store; unsure: asleep in a futex, and no stack to tell why
    group: str = ""
    call: str = ""
    # Of the thread that waits for its peers; none of a rank that does not.
    frames: tuple[Frame, ...] = field(default=(), compare=False, repr=False)


def is_gone(facts: RankFacts) -> bool:
    """Return True for a rank that left, or has no process."""
    return facts.left or not facts.alive or (facts.pid is None and not facts.looks)


@dataclass(frozen=True)
class SingleRanks:
    """Each rank by itself, as its looks show it, and the processes of all."""

    processes: ProcessTable
    ranks: tuple[SingleRank, ...]

    def renew(self, ranks: Sequence[RankFacts]) -> SingleRanks | None:
        """Return the same results for `ranks`, or None if their looks differ and all must be worked
        out again.
        """
        known = {one.facts.rank: one for one in self.ranks}
        seen = [facts for facts in ranks if facts.rank in known or not _has_no_process(facts)]
        if {facts.rank for facts in seen} != known.keys() or not all(
            _shows_the_same(facts, known[facts.rank].facts) for facts in seen
        ):
            return None
        renewed = (
            replace(known[facts.rank], facts=facts)
            if facts.rank in known
            else SingleRank(facts, None)
            for facts in ranks
        )
        return SingleRanks(self.processes, tuple(renewed))


def _has_no_process(facts: RankFacts) -> bool:
    return facts.pid is None and not (facts.looks or facts.children)


def _shows_the_same(facts: RankFacts, before: RankFacts) -> bool:
    """Return whether everything that the results for a rank depend on is the same."""
    return (
        (facts.host, facts.pid) == (before.host, before.pid)
        and (facts.alive, facts.left) == (before.alive, before.left)
        and facts.environment == before.environment
        and _are_the_same(facts.looks, before.looks)
        and len(facts.children) == len(before.children)
        and all(map(_are_the_same, facts.children, before.children))
    )


def _are_the_same(looks: Sequence[Look], before: Sequence[Look]) -> bool:
    """Return whether looks show the same, what the source says of their frames included: that is no
    part of what a frame is, and is read at the end.
    """
    return len(looks) == len(before) and all(
        one is other or (one == other and _list_source_facts(one) == _list_source_facts(other))
        for one, other in zip(looks, before, strict=True)
    )


def _list_source_facts(look: Look) -> list[object]:
    frames = (f for thread in look.threads for f in thread.frames)
    return [(f.handler, f.condition, f.calls, f.given, f.asks, f.takes, f.inside) for f in frames]


def explain_single_ranks(ranks: Sequence[RankFacts]) -> SingleRanks:
    """Return what the looks at each rank show by themselves."""
    everyone = build_process_table(ranks)
    locks = _list_held_locks(ranks)
    alone = [_explain_single_rank(facts, everyone, locks) for facts in ranks]
    found = _add_builders(_add_owners(_add_waits_in_same_line(alone)))
    found = _add_meetings_of_workers(_add_serving_ranks(_add_asked_actors(found)))
    return SingleRanks(everyone, tuple(found))


def _explain_single_rank(
    facts: RankFacts, everyone: ProcessTable, locks: Sequence[HeldLock]
) -> SingleRank:
    if is_gone(facts):
        return SingleRank(facts, None)
    view = merge_looks(facts.looks)
    if view is None:
        return SingleRank(facts, Wait("unknown", ""))
    wait = find_blocking_reason_in(
        view,
        facts.looks,
        ProcessContext(facts, everyone, [one for one in locks if one.rank != facts.rank]),
    )
    if wait.kind == "futex" and not view.frames:
        return SingleRank(facts, wait, view, "unsure")
    if wait.kind in ("collective", "store"):
        call = find_group_call(view.frames)
        kind = find_group_wait(view) or "store"
        return SingleRank(facts, wait, view, kind, call, view.frames)
    helper = find_thread_in_collective(view) if _may_be_for_a_thread(wait, view) else None
    if helper is None:
        return SingleRank(facts, wait, view)
    return _make_thread_wait(SingleRank(facts, wait, view), helper)


def _may_be_for_a_thread(wait: Wait, view: ProcessSnapshot) -> bool:
    """Return whether a main thread may wait for another thread of its process; so does an event
    loop that nothing else can wake (asyncio.to_thread).
    """
    if wait.kind == "itself":
        return runs_event_loop(view) and hears_itself_alone(view)
    return wait.kind in ("thread", "futex") or wait.has_no_owner


def _add_waits_in_same_line(ranks: Sequence[SingleRank]) -> Sequence[SingleRank]:
    """Return `ranks`; who is asleep where another one is in a collective, by its native frames, or
    waits for a thread that is, is in it too, and so is who hears a socket where another one asks
    the store: of most ranks no native frames are read.
    """
    shown = {
        line: one
        for one in ranks
        if one.group in _SLEEPS_IN and (line := _name_line(one.frames, native=True))
    }
    return [_add_wait_in_line(one, shown) for one in ranks] if shown else ranks


_Line = tuple[tuple[str, str, int], ...]
# What a rank that waits in such a way is seen to wait for where no frame tells which it is.
_SLEEPS_IN = {"collective": "futex", "store": "socket"}


def _add_wait_in_line(one: SingleRank, shown: Mapping[_Line, SingleRank]) -> SingleRank:
    view, wait = one.view, one.wait
    if view is None or wait is None or one.group:
        return one
    same = shown.get(_name_line(view.frames, native=False))
    if same is not None and wait.kind == _SLEEPS_IN[same.group]:
        return replace(one, wait=same.wait, group=same.group, call=same.call, frames=view.frames)
    for thread in view.threads if _may_be_for_a_thread(wait, view) else ():
        same = shown.get(_name_line(thread.frames, native=False))
        if (
            same is not None
            and same.group == "collective"
            and thread is not view.main
            and not thread.active
        ):
            return _make_thread_wait(one, thread)
    return one


def _make_thread_wait(one: SingleRank, thread: Thread) -> SingleRank:
    """Return a rank that waits for a thread of its own, which is in a collective."""
    place = format_innermost_frame(thread.frames)
    met = Wait("collective", f"{place}, in thread {thread.name or thread.os_id}")
    call = find_group_call(thread.frames)
    return replace(one, wait=met, group="collective", call=call, frames=thread.frames)


def _name_line(frames: Sequence[Frame], native: bool) -> _Line:
    """Return where a thread stands, () if it shows native frames and is not to, or the other way
    round.
    """
    if any(frame.native for frame in frames) is not native:
        return ()
    return tuple((frame.file, frame.name, frame.line) for frame in frames if not frame.native)


def _add_owners(ranks: Sequence[SingleRank]) -> Sequence[SingleRank]:
    """Return `ranks`; who waits for a lock of processes, a Manager's among them, waits for the only
    rank that shares it and stands inside of it, as its source tells.
    """
    return [
        replace(one, wait=_name_owner(one.wait, one, owner))
        if one.wait is not None and (owner := _find_lock_owner(one, ranks)) is not None
        else one
        for one in ranks
    ]


def _name_owner(wait: Wait, one: SingleRank, owner: _Owner) -> Wait:
    known = replace(wait, pid=owner.pid, process=owner.name, rank=owner.rank)
    main = one.view.main if one.view is not None else None
    asks = _find_manager_call(main)
    if asks is None or main is None:
        return known
    place = next((f for f in main.frames if f.takes is not None), asks)
    lock = f"{place.takes.name}, " if place.takes is not None else ""
    words = f"{lock}a lock of a Manager, in {format_frame(place)}"
    return replace(known, kind="lock", detail=words, what="", host="")


def _find_manager_call(main: Thread | None) -> Frame | None:
    """Return the frame by which a main thread asks a Manager for a lock, None if it does not."""
    return find_role(main.frames, Role.TAKES_MANAGED_LOCK) if main is not None else None


class _Owner(NamedTuple):
    """The process of a rank that has a lock."""

    rank: RankId
    pid: int
    name: str


def _find_lock_owner(one: SingleRank, ranks: Sequence[SingleRank]) -> _Owner | None:
    if one.view is None:
        return None
    main = one.view.main
    futex = one.view.call.futex if one.view.call is not None else None
    sharers = futex.sharers if futex is not None and futex.is_shared_semaphore else None
    if _find_manager_call(main) is not None:
        sharers = tuple(other.view.look.pid for other in ranks if other.view is not None)
    if not sharers:
        return None
    taking = next((f for f in (main.frames if main else ()) if f.takes is not None), None)
    if taking is None or taking.takes is None:
        return None
    owners = [
        _Owner(other.facts.rank, other.view.look.pid, other.view.look.name)
        for other in ranks
        if other.view is not None
        and other.facts.host == one.facts.host
        and other.view.look.pid in sharers
        and stands_inside(_choose_shown_look(other), taking.takes, taking.file)
    ]
    return owners[0] if len(owners) == 1 else None


def _choose_shown_look(one: SingleRank) -> Look:
    """Return the last look at a rank's own process that shows a stack: of one that stands still the
    very last one may show none, where the machine is busy.
    """
    looks = one.facts.looks[::-1] if one.facts.looks and not one.facts.moved else ()
    shown = (look for look in looks if look.threads)
    return next(shown, one.view.look if one.view is not None else one.facts.looks[-1])


def _add_builders(ranks: Sequence[SingleRank]) -> Sequence[SingleRank]:
    """Return `ranks`; the lock of a build is that of the only other rank that builds, also where no
    look shows who has it.
    """
    if not any(waits_for_unknown_builder(one.wait) for one in ranks):
        return ranks
    building = find_builders(one.facts for one in ranks)
    return [_add_builder(one, building) for one in ranks]


def _add_builder(one: SingleRank, building: Sequence[RankId]) -> SingleRank:
    others = [rank for rank in building if rank != one.facts.rank]
    if one.wait is None or not waits_for_unknown_builder(one.wait) or len(others) != 1:
        return one
    return replace(one, wait=replace(one.wait, rank=others[0]))


def _add_asked_actors(indexed: Sequence[SingleRank]) -> Sequence[SingleRank]:
    """Return `indexed`; who waits in ray.get or ray.wait waits for the rank whose actor is in a
    method, if that is the only worker of Ray to which it has a connection, or for the only one that
    is no rank: calls go to an actor without anybody between
    (core_worker/transport/actor_task_submitter.cc).
    """
    if not any(one.view is not None and waits_for_ray(one.view.frames) for one in indexed):
        return indexed
    actors = {
        ProcessId(one.facts.host, one.view.look.pid): one
        for one in indexed
        if one.view is not None and runs_method(find_actor(one.view.look.command))
    }
    pids = {one.facts.pid for one in indexed}
    return [_make_actor_wait(one, actors, pids) for one in indexed]


def _make_actor_wait(
    one: SingleRank, actors: Mapping[ProcessId, SingleRank], ranks: Collection[int | None]
) -> SingleRank:
    view, wait = one.view, one.wait
    if view is None or wait is None or wait.rank is not None or not waits_for_ray(view.frames):
        return one
    asked = {
        pid: name
        for socket in view.look.sockets
        if socket.state == "ESTABLISHED"
        for pid, name in zip(socket.peer_pids, socket.peer_names, strict=False)
        if pid != view.look.pid and name.startswith(TITLE) and not is_service([name])
    }
    actor = actors.get(ProcessId(one.facts.host, min(asked))) if len(asked) == 1 else None
    actor = actor or _find_asked_rank(one, view, actors)
    if actor is None or actor.view is None:
        return _make_wait_for_other_actor(one, {p: n for p, n in asked.items() if p not in ranks})
    name, pid = find_actor(actor.view.look.command), actor.view.look.pid
    return replace(one, wait=_make_answer_wait("rank", pid, name, actor.facts.rank, bool(asked)))


def _find_asked_rank(
    one: SingleRank, view: ProcessSnapshot, actors: Mapping[ProcessId, SingleRank]
) -> SingleRank | None:
    """Return the rank that is an actor of Ray which another one asks, as the source of that says;
    None where it does not say which, or does not ask a rank.
    """
    there = {
        process.pid: actor
        for process, actor in actors.items()
        if process.host == one.facts.host and actor.view is not None
    }
    looks = [actor.view.look for actor in there.values() if actor.view is not None]
    wait = find_asked_actor(view, looks)
    return there.get(wait.pid or 0) if wait is not None else None


def _make_answer_wait(
    kind: WaitKind, pid: int, name: str, rank: RankId | None = None, is_connected: bool = True
) -> Wait:
    to = ", to which it is connected" if is_connected else ", which its source asks"
    return Wait(kind, f"an answer of {name} ({pid}){to}", pid, name, rank)


def _make_wait_for_other_actor(one: SingleRank, asked: Mapping[int, str]) -> SingleRank:
    """Return `one`; where it is connected to one actor alone that is no rank, and nothing more is
    known of its wait, it waits for that.
    """
    if len(asked) != 1 or one.wait is None or one.wait.pid is not None:
        return one
    ((pid, name),) = asked.items()
    is_cut = len(name) == LONGEST_NAME
    if not (is_cut or runs_method(find_actor([name]))):
        return one
    return replace(one, wait=_make_answer_wait("process", pid, name))


def _add_serving_ranks(indexed: Sequence[SingleRank]) -> Sequence[SingleRank]:
    """Return `indexed`; who waits in a remote call waits for the rank that runs it, if it is known
    which one that is.
    """
    calls = _find_calls(indexed, lambda view: find_remote_call(view.frames))
    futures = _find_calls(indexed, lambda view: find_awaited_future(view.frames))
    if not (calls or futures):
        return indexed
    workers = find_workers(
        (one.facts.rank, one.view.threads if one.view is not None else ()) for one in indexed
    )
    return [
        _make_remote_wait(one, calls[one.facts.rank], workers)
        if one.facts.rank in calls
        else _make_future_wait(one, futures[one.facts.rank], workers)
        if one.facts.rank in futures
        else one
        for one in indexed
    ]


def _find_calls(
    indexed: Sequence[SingleRank], find: Callable[[ProcessSnapshot], Frame | None]
) -> dict[RankId, Frame]:
    """Return by rank what `find` finds of those whose wait names no rank and is for no group."""
    return {
        one.facts.rank: call
        for one in indexed
        if one.view is not None
        and not one.group
        and one.wait is not None
        and one.wait.rank is None
        and (call := find(one.view)) is not None
    }


def _make_remote_wait(one: SingleRank, call: Frame, workers: Sequence[Worker]) -> SingleRank:
    size = one.facts.environment.get("WORLD_SIZE", "")
    claimed = int(size) if size.isascii() and size.isdecimal() and len(size) < _MOST_DIGITS else 0
    rank = choose_server(call, one.facts.rank, workers, max(claimed, len(workers)))
    if rank is None:
        return one
    to = f" to {name}" if (name := read_called(call)) else ""
    return replace(one, wait=Wait("rank", f"{call.name}{to}: a thread of it runs that", rank=rank))


def _make_future_wait(one: SingleRank, waits: Frame, workers: Sequence[Worker]) -> SingleRank:
    """Return who waits for a future with the only rank that runs a remote call, as waiting for its
    peers where several do, as it is where none does.
    """
    servers = list_servers(one.facts.rank, workers)
    if len(servers) != 1:
        return _make_meeting_wait(one, waits) if servers else one
    detail = f"a future in {format_frame(waits)}: a thread of it runs a remote call"
    return replace(one, wait=Wait("rank", detail, rank=servers[0]))


def _add_meetings_of_workers(indexed: Sequence[SingleRank]) -> Sequence[SingleRank]:
    """Return `indexed`; who waits until all workers have come waits for its peers. Where another
    waits for a remote call of which it is not known who runs it, perhaps nobody does: then it must
    have peers that are neither called nor come, and it waits for these as well.
    """
    meetings = _find_calls(indexed, find_meeting_of_workers)
    unknown = {one.facts.rank: call for one in indexed if (call := _find_unknown_call(one))}
    unknown = {rank: call for rank, call in unknown.items() if rank not in meetings}
    if unknown and not any(map(_stands_elsewhere, indexed)):
        return indexed
    waits = {**meetings, **unknown}
    return [
        _make_meeting_wait(one, waits[one.facts.rank]) if one.facts.rank in waits else one
        for one in indexed
    ]


def _find_unknown_call(one: SingleRank) -> Frame | None:
    """Return the remote call in which a rank waits for it is not known whom, None if in none."""
    if one.view is None or one.wait is None or one.wait.rank is not None:
        return None
    return find_remote_call(one.view.frames)


def _stands_elsewhere(one: SingleRank) -> bool:
    """Return whether a rank lives, and waits neither for peers nor in what RPC is made of."""
    view = one.view
    if view is None or one.wait is None or one.group or one.wait.rank is not None:
        return False
    return not any(stands_in_remote_calls(thread.frames) for thread in view.threads)


def _make_meeting_wait(one: SingleRank, met: Frame) -> SingleRank:
    assert one.view is not None
    call, wait = find_group_call(one.view.frames), Wait("collective", format_frame(met))
    return replace(one, wait=wait, group="collective", call=call, frames=one.view.frames)


def _list_held_locks(ranks: Sequence[RankFacts]) -> tuple[HeldLock, ...]:
    """Return the lock files that ranks and their children have, one entry a rank and file."""
    found: dict[tuple[RankId, int], HeldLock] = {}
    for facts in ranks:
        for look in [looks[-1] for looks in (facts.looks, *facts.children) if looks]:
            for lock in look.holds:
                if lock.path.endswith(".lock"):
                    held = replace(lock, holder=look.pid, holder_name=look.name)
                    found[facts.rank, lock.inode] = HeldLock(facts.rank, facts.host, held)
    return tuple(found.values())
