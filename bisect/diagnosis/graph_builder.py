"""Builds the wait-for graph of a case: edges with their evidence from each rank to what it waits
for, and on to the processes, threads, locked files, pipes and peers behind that.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..base.identity import ProcessId, RankId, name_rank
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Look
from ..base.process_roles import find_actor, find_server_process
from ..base.rank_facts import RankFacts
from ..base.verdict_facts import Wait, WaitKind
from ..base.words import AWAITED
from .case import Case
from .graph_drawing import GraphDrawing
from .process.actor_waits import find_asked_methods, waits_for_ray
from .process.blocked_syscalls import (
    CHILD_WAIT_CALLS,
    READ_CALLS,
    WRITE_CALLS,
    format_others,
    format_traffic,
)
from .process.blocking_reason import (
    ProcessContext,
    find_blocking_reason,
    find_blocking_reason_of_child,
)
from .process.frames import format_frame, format_innermost_frame
from .process.helper_processes import is_kept_by_others
from .process.loop_waits import format_loop
from .process.pipe_writers import find_writers, only_main_thread_acts
from .process.process_snapshot import (
    ProcessSnapshot,
    ProcessTable,
    find_descendants,
    merge_looks,
    put_thread_first,
)
from .process.request_waits import answers_by_main_thread, waits_for_an_answer
from .rank_connections import find_closed_circle
from .rank_waits import RankWait
from .served_ranks import PLACE as CONNECTIONS
from .server_roles import stands_in_serving_loop
from .single_ranks import is_gone
from .thread_edges import HeldLock, ThreadEdges, find_held_lock, waits_for_a_file_lock
from .wait_graph import NodeKind, WaitGraph

# What a process waits for at nobody's hands.
_WAITS_FOR_NO_PROCESS = frozenset(["stopped", "sleep", "kernel", "file", "device", "input"])
# The kind of the node, and the word before its name.
_THING_NODES: dict[WaitKind, tuple[NodeKind, str]] = {
    "lock": ("lock", "lock"),
    "socket": ("peer", ""),
    "store": ("store", "store"),
    "pipe": ("pipe", ""),
    "file": ("file", "file"),
    "device": ("device", "device"),
}


@dataclass(frozen=True)
class _Process:
    """A process whose edges are drawn: a rank's own, or a descendant."""

    name: str  # of its node
    facts: RankFacts  # of its rank
    looks: Sequence[Look]
    view: ProcessSnapshot
    own: bool
    thread: int | None = None  # the one that waits, where it is not the main one


class ProcessEdges:
    """Draws the edges of processes, one after another, as far as they lead."""

    def __init__(
        self, drawing: GraphDrawing, ranks: Sequence[RankFacts], everyone: ProcessTable
    ) -> None:
        self._drawing, self._people = drawing, everyone
        self._ranks = {ProcessId(r.host, r.pid): r.rank for r in ranks if r.pid is not None}
        self._children = {
            ProcessId(facts.host, looks[-1].pid): (facts, looks)
            for facts in ranks
            for looks in facts.children
            if looks
        }
        self._held = _find_lock_holders(ranks)
        self._closed = find_closed_circle(ranks)
        self._looks = {
            ProcessId(facts.host, looks[-1].pid): (facts, looks)
            for facts in ranks
            for looks in (facts.looks, *facts.children)
            if looks
        }
        self._threads: dict[ProcessId, ThreadEdges] = {}
        self._drawn: set[ProcessId] = set()
        self._ahead: list[ProcessId] = []  # children that somebody waits for

    def of_rank(self, facts: RankFacts, view: ProcessSnapshot | None, wait: Wait) -> None:
        """Draw what a rank's own process waits for."""
        if view is not None:
            name = name_rank(facts.rank)
            self._draw(_Process(name, facts, facts.looks, view, own=True), wait)

    def of_member_beside(self, place: str, facts: RankFacts, wait: Wait) -> None:
        """Draw the process for which a rank alone waits in a collective, if it is known."""
        if wait.kind != "collective" or wait.pid is None:
            return
        who = self._someone(ProcessId(facts.host, wait.pid), wait.process or "")
        shows = f"{wait.process} ({wait.pid}) has connections of its group, and is not there"
        self._drawing.link(place, who, "rank", shows)

    def follow(self) -> None:
        """Draw what those wait for that were reached."""
        while self._ahead:
            process = self._ahead.pop()
            facts, looks = self._children[process]
            view = merge_looks(looks)
            if process not in self._drawn and view is not None:
                self._drawn.add(process)
                wait = find_blocking_reason_of_child(looks, ProcessContext(facts, self._people))
                wait = self._find_wait_for_server(process, view) or wait
                self._drawing.waits[facts.rank, process.pid] = wait
                other = _find_awaited_process(wait, facts)
                outside = wait.kind == "socket" and other not in self._people.rank_of
                name = self._drawing.name_on(process.host, f"process {process.pid}")
                if outside or wait.kind in _WAITS_FOR_NO_PROCESS:
                    self._drawing.note_waits_for_nothing(name)
                self._draw(_Process(name, facts, looks, view, own=False), wait)

    def _find_wait_for_server(self, process: ProcessId, view: ProcessSnapshot) -> Wait | None:
        """Return the wait of an engine, which waits in its loop for requests, for the API server
        that started it and is kept by what is none of their processes from handing any on.
        """
        server = ProcessId(process.host, view.look.ppid)
        if server not in self._looks or not stands_in_serving_loop(view.frames):
            return None
        facts, looks = self._looks[server]
        role = find_server_process(looks[-1].command)
        if role is None or not role.is_server:
            return None
        wait = find_blocking_reason(looks, ProcessContext(facts, self._people))
        family = {one.pid for one in self._looks if one.host == process.host}
        if not is_kept_by_others(wait, family):
            return None
        return Wait("process", f"requests of {role.name}", server.pid, role.name)

    def _draw(self, process: _Process, wait: Wait) -> None:
        view, draw = process.view, self._drawing
        threads = self._threads_of(process.name, process.facts, process.looks)
        if threads.of_main(view, wait):
            return
        if wait.kind == "process":
            self._child(process, wait)
            self._alternatives(process, wait)
        elif wait.kind in _THING_NODES:
            self._thing(process, wait)
            self._alternatives(process, wait)
        else:
            nobody = draw.node(AWAITED[wait.kind], "other")
            draw.link(process.name, nobody, wait.kind, wait.detail or _format_process_place(view))
        self._writers(process)

    def _alternatives(self, process: _Process, wait: Wait) -> None:
        """Draw those for whom a process that hears several may wait as well."""
        for pid in wait.others if wait.is_for_any else ():
            other = ProcessId(process.facts.host, pid)
            name = self._people.names.get(other, "")
            called = f"{name} ({pid})" if name else f"process {pid}"
            who = self._someone(other, name)
            shows = f"or it waits for {called}"
            self._drawing.link(process.name, who, wait.kind, shows, firm=process.own)

    def _writers(self, process: _Process) -> None:
        """Draw all that could write what a process waits to read, if each of them is known and does
        nothing but by its main thread: it waits for one of these, and where all of them wait for
        it, nobody ever writes.
        """
        found = find_writers(process.view) if process.thread is None else None
        if found is None:
            return
        path, pids = found
        writers = [ProcessId(process.facts.host, pid) for pid in pids]
        looks = [self._looks[one][1][-1] for one in writers if one in self._looks]
        if len(looks) < len(writers) or not all(map(only_main_thread_acts, looks)):
            return
        host, draw = process.facts.host, self._drawing
        end = draw.node(draw.name_on(host, f"the writing end of {path}"), "pipe")
        shows = _format_process_place(process.view)
        draw.link(process.name, end, "pipe", shows, firm=False, likely=True)
        nodes = []
        for one, look in zip(writers, looks, strict=True):
            name = (
                process.name if one.pid == process.view.look.pid else self._someone(one, look.name)
            )
            nodes.append(name)
            who = f"{look.name} ({one.pid}) has it"
            draw.link(end, name, "pipe", who, firm=False, likely=True)
        draw.one_of(end, nodes)

    def _threads_of(self, name: str, facts: RankFacts, looks: Sequence[Look]) -> ThreadEdges:
        """Return what draws the threads of a process; `name`: of its node."""
        process = ProcessId(facts.host, looks[-1].pid)
        if process not in self._threads:
            view = merge_looks(looks)
            look = view.look if view is not None else looks[-1]

            def follow(thread: str, tid: int) -> None:
                self._thing_of_thread(thread, tid, facts, looks)

            def asks_a_rank(tid: int) -> bool:
                inside = tuple(put_thread_first(look, tid) for look in looks)
                return self._find_asked_rank(inside, merge_looks(inside), facts) is not None

            self._threads[process] = ThreadEdges(
                self._drawing, name, facts, look, follow, asks_a_rank
            )
        return self._threads[process]

    def _thing_of_thread(
        self, name: str, tid: int, facts: RankFacts, looks: Sequence[Look]
    ) -> None:
        """Draw the lock on a file that a thread waits for, or the connection to another rank from
        which it wants an answer: what is asked of main threads is asked of this one.
        """
        inside = tuple(put_thread_first(look, tid) for look in looks)
        view = merge_looks(inside)
        if view is None:
            return
        wait = self._find_asked_rank(inside, view, facts)
        if wait is None and waits_for_a_file_lock(looks[-1], tid):
            wait = find_blocking_reason(inside, ProcessContext(facts, self._people))
            wait = wait if wait.kind == "lock" and wait.what else None
        if wait is not None:
            self._thing(_Process(name, facts, inside, view, own=True, thread=tid), wait)

    def _find_asked_rank(
        self, inside: Sequence[Look], view: ProcessSnapshot | None, facts: RankFacts
    ) -> Wait | None:
        """Return the wait of a thread, put first in the looks `inside`, for what another rank is to
        send over a connection; None if it does not wait so.
        """
        if view is None or view.call_name not in READ_CALLS:
            return None
        wait = find_blocking_reason(inside, ProcessContext(facts, self._people))
        other = _find_awaited_process(wait, facts)
        is_other = other in self._ranks and self._ranks[other] != facts.rank
        return wait if wait.kind == "socket" and is_other else None

    def _child(self, process: _Process, wait: Wait) -> None:
        awaited = _find_awaited_process(wait, process.facts)
        if awaited is None:
            child = self._drawing.node(f"a child of {process.name}", "process")
        else:
            child = self._someone(awaited, wait.process or "")
        # The end of a child, or only what it has to say?
        hard = process.view.call_name in CHILD_WAIT_CALLS
        shows = _add_what_else(_format_process_place(process.view), process, wait)
        # Of two actors of Ray the source says which one the other asks.
        asks_an_actor = _asks_an_actor(process.view, wait)
        likely = asks_an_actor or self._is_answered_by_main_thread(process.view, wait, awaited)
        if asks_an_actor:
            shows = f"{shows}, for {wait.detail or wait.process}"
        self._drawing.link(process.name, child, "process", shows, hard=hard, likely=likely)

    def _thing(self, process: _Process, wait: Wait) -> None:
        """Draw the edge to a thing, and from there to whoever has it or is behind it."""
        kind, word = _THING_NODES[wait.kind]
        called = f"{word} {wait.what or wait.detail or kind}".strip()
        if kind in ("pipe", "device"):
            called = self._drawing.name_on(process.facts.host, called)
        other = _find_awaited_process(wait, process.facts)
        if other is None and kind == "lock":
            other = self._held.get(wait.what)
        name = (wait.process or self._people.names.get(other, "")) if other is not None else ""
        who = self._someone(other, name) if other is not None else ""
        # All connections over one Unix socket have its path, at both of their ends.
        if kind == "peer" and who and self._drawing.leads_elsewhere(called, who):
            called = f"{called} of {process.name}"
        thing = self._drawing.node(called, kind)
        # A reader may be idle; a writer, and who wants a lock, waits for whoever is behind it.
        writes = process.view.call_name in WRITE_CALLS
        writes = writes and (kind == "pipe" or self._is_for_main_thread(process, other))
        # Who has a semaphore of processes its source says, and not the kernel.
        likely = kind == "lock" and wait.pid is not None and not wait.what
        own = ProcessId(process.facts.host, process.view.look.pid)
        likely = likely or (kind == "peer" and {own, other} <= self._closed)
        kept: HeldLock | None = None
        if kind == "peer":
            likely = likely or self._is_answered_by_main_thread(process.view, wait, other)
            kept = self._find_kept_thread(other)
            likely = likely or kept is not None
        hard = other is not None and not likely and (kind == "lock" or writes)
        shows = ""
        if kind in ("peer", "store"):
            shows = format_traffic(process.looks, wait, process.facts.environment)
        # What a child was told to wait for by a peer is no reason to blame that peer's rank.
        firm = process.own or kind == "lock" or _is_part_of_server(process.view.look)
        shows = _add_what_else(shows or _format_process_place(process.view), process, wait)
        self._drawing.link(process.name, thing, wait.kind, shows, firm, hard, likely)
        if other is not None:
            called = f"{name} ({other.pid})" if name else f"process {other.pid}"
            has = "has it" if kind == "lock" else "is at its other end"
            shows = f"{called} {has}" + (f", {_describe_kept(kept)}" if kept is not None else "")
            self._drawing.link(thing, who, wait.kind, shows, hard=hard, likely=likely)
            if kind == "lock":
                self._threads_with(thing, other, who, called, process.thread)

    def _is_answered_by_main_thread(
        self, view: ProcessSnapshot, wait: Wait, other: ProcessId | None
    ) -> bool:
        """Return whether a process waits for an answer that only the main thread of `other` gives,
        which is where the edges of that one begin.
        """
        if other not in self._looks or not waits_for_an_answer(view, wait):
            return False
        answers = merge_looks(self._looks[other][1])
        return answers is not None and answers_by_main_thread(view, answers)

    def _find_kept_thread(self, other: ProcessId | None) -> HeldLock | None:
        """Return the lock that a thread of `other` waits for and its main thread has: one that
        answers there, most likely, and does so once the main thread goes on. None if none does.
        """
        if other not in self._looks:
            return None
        look = self._looks[other][1][-1]
        held = (find_held_lock(look, one) for one in look.threads if one.os_id != look.pid)
        return next((o for o in held if o is not None and o.holder.os_id == look.pid), None)

    def _is_for_main_thread(self, process: _Process, other: ProcessId | None) -> bool:
        """Return whether nobody but the main thread of `other` can take what a process sends over a
        connection: its send waits for as long as that one does something else.
        """
        call = process.view.call
        if other not in self._looks or call is None or not call.descriptors:
            return False
        known = [one.socket for one in call.descriptors]
        connected = all(one is not None and one.state == "ESTABLISHED" for one in known)
        return connected and only_main_thread_acts(self._looks[other][1][-1])

    def _threads_with(
        self, lock: str, process: ProcessId, name: str, called: str, waits: int | None
    ) -> None:
        """Draw the threads of a process one of which has the lock on a file: it is the process's,
        and the kernel does not tell whose of them (man 2 flock, man 2 fcntl_locking).
        """
        if process not in self._looks:
            return
        threads = self._threads_of(name, *self._looks[process])
        nodes = threads.may_have_locked_a_file(waits)
        if nodes:
            self._drawing.one_of(lock, nodes)
        for node in nodes:
            shows = f"{called} has it, most likely {threads.describe(node)}"
            self._drawing.link(lock, node, "lock", shows, firm=False, likely=True)

    def _someone(self, process: ProcessId, name: str) -> str:
        """Return the node of a process; one of the job's own is followed further."""
        if process in self._ranks:
            return name_rank(self._ranks[process])
        rank = self._people.rank_of.get(process)
        says = ", ".join(filter(None, [name, f"of {name_rank(rank)}" if rank is not None else ""]))
        if process in self._children:
            self._ahead.append(process)
        return self._drawing.process(process, says, rank)


def _describe_kept(kept: HeldLock) -> str:
    frame = format_frame(kept.frame)
    return f"and a thread of it waits in {frame} for the lock {kept.lock.name} of its main thread"


def _add_what_else(shows: str, process: _Process, wait: Wait) -> str:
    """Return what an edge shows, with the others for whom it may stand, and what the event loop of
    the process that waits tells.
    """
    family = [looks[-1].pid for looks in find_descendants(process.facts, process.view.look.pid)]
    loop = format_loop(wait, process.view, family)
    return ", ".join(filter(None, [shows, format_others(wait), loop]))


def _asks_an_actor(view: ProcessSnapshot, wait: Wait) -> bool:
    """Return whether the source of an actor of Ray says for which other one it waits."""
    is_actor = bool(find_actor(view.look.command)) and bool(find_asked_methods(view.frames))
    return is_actor and wait.pid is not None and waits_for_ray(view.frames)


def _is_part_of_server(look: Look) -> bool:
    """Return whether a process is no helper of a rank, but what an inference server consists of
    besides its ranks: whom it waits for the server waits for.
    """
    role = find_server_process(look.command)
    return role is not None and not role.is_rank


def _find_awaited_process(wait: Wait, facts: RankFacts) -> ProcessId | None:
    """Return the process that a rank, or a child of it, waits for, as far as it is known."""
    return None if wait.pid is None else ProcessId(wait.host or facts.host, wait.pid)


def _format_process_place(view: ProcessSnapshot) -> str:
    """Return in words where a process is: "futex in Condition.wait (threading.py:327)"."""
    frame = format_innermost_frame(view.frames)
    return " in ".join(part for part in (view.call_name or view.wchan, frame) if part)


def _find_lock_holders(ranks: Sequence[RankFacts]) -> dict[str, ProcessId]:
    """Return which process of the job has a lock, by the file's path."""
    return {
        lock.path: ProcessId(facts.host, looks[-1].pid)
        for facts in ranks
        for looks in (facts.looks, *facts.children)
        if looks
        for lock in looks[-1].holds
        if lock.path
    }


# Its place, for whom it waits, and whether frames show that these do not go on either.
Meeting = tuple[str, frozenset[RankId], bool]


def build_wait_graph(case: Case) -> WaitGraph:
    """Return who waits for what in `case`: ranks, and whatever processes and things lie between
    them and behind them.
    """
    return _RankEdges(case).graph()


class _RankEdges:
    """Draws where each rank is, and leaves to `ProcessEdges` what lies behind that."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._drawing = GraphDrawing(case.ranks)
        self._named = frozenset(case.by_rank) | frozenset(case.absent)
        self._meetings: dict[Meeting, str] = {}
        self._processes = ProcessEdges(
            self._drawing, case.ranks, case.snapshot.single_ranks.processes
        )

    def graph(self) -> WaitGraph:
        case, draw = self._case, self._drawing
        for facts in case.ranks:
            process = f"{facts.host} pid {facts.pid}".strip() if facts.pid is not None else ""
            kind: NodeKind = "absent rank" if facts.never_started else "rank"
            draw.node(name_rank(facts.rank), kind, process, facts.rank)
        for rank in case.absent:
            draw.node(name_rank(rank), "absent rank", "nobody started it", rank)
        for facts in case.ranks:
            self._rank(facts, case.rank_waits[facts.rank])
        self._processes.follow()
        return draw.graph({r.rank for r in case.ranks if not r.finished} | set(case.absent))

    def _rank(self, facts: RankFacts, found: RankWait) -> None:
        if is_gone(facts) or found.wait is None:
            return
        if facts.looks:
            self._drawing.waits[facts.rank, facts.looks[-1].pid] = found.wait
        name = name_rank(facts.rank)
        if found.place:
            self._meets(name, facts, found)
        elif found.other_awaited and found.wait.kind in ("rank", "absent_rank"):
            for rank in sorted(found.other_awaited & self._named):
                # By its stack, where it did not say so: the process is named if frames tell it.
                told = bool(facts.awaits)
                said = f"it said that it waits for {name_rank(rank)}" if told else found.wait.detail
                likely = not told and found.wait.process is not None
                self._drawing.link(name, name_rank(rank), found.wait.kind, said, likely=likely)
        else:
            self._processes.of_rank(facts, found.view, found.own_wait or found.wait)

    def _meets(self, name: str, facts: RankFacts, found: RankWait) -> None:
        """A place where ranks meet lies between those that are there and those that are not."""
        place = self._place(found)
        kind: WaitKind = "rank"
        shows = f"it has finished checkpoint {facts.reached}, and is held until all have"
        if not facts.held and found.own_wait is not None:
            is_meeting = found.own_wait.kind in ("collective", "store")
            kind = found.own_wait.kind if is_meeting else "collective"
            if self._drawing.nodes[place].kind == "peer":  # no meeting: it may be part of no ring
                kind = "socket"
            shows = found.own_wait.detail or found.own_wait.kind
        self._drawing.link(name, place, kind, shows)

    def _place(self, found: RankWait) -> str:
        likely = found.is_kept_by_transfer
        meeting = (found.place, found.awaited, likely)
        if meeting in self._meetings:
            return self._meetings[meeting]
        same = sum(place == found.place for place, *_ in self._meetings)
        name = f"{found.place} ({same + 1})" if same else found.place
        self._meetings[meeting] = self._drawing.node(name, _meeting_kind(found.place))
        facts = self._case.facts(found.rank)
        if facts is not None and found.wait is not None:
            self._processes.of_member_beside(name, facts, found.wait)
        for rank in sorted(found.awaited & self._named):
            absent = self._drawing.nodes[name_rank(rank)].kind == "absent rank"
            kind: WaitKind = "absent_rank" if absent else "rank"
            shows = self._whereabouts(rank, found.place)
            self._drawing.link(name, name_rank(rank), kind, shows, likely=likely)
        if found.unseen_ranks:
            assert found.wait is not None
            others = self._drawing.node(found.unseen_ranks, "other")
            self._drawing.link(name, others, found.wait.kind, "they are not seen from here")
        return name

    def _whereabouts(self, rank: RankId, place: str) -> str:
        """Say of a rank why the others still wait for it."""
        facts = self._case.facts(rank)
        if facts is None or facts.never_started:
            return f"rank {rank} never came"
        if is_gone(facts):
            left = f", with status {facts.status}" if facts.status is not None else ""
            return f"rank {rank} has left{left}"
        there = self._case.rank_waits[rank].place
        if there == place:
            return f"rank {rank} is in it as well"
        return f"rank {rank} is not there" + (f": it is in {there}" if there else "")


def _meeting_kind(place: str) -> NodeKind:
    if place.startswith("our barrier"):
        return "barrier"
    if place.startswith(CONNECTIONS):
        return "peer"
    return "store" if place.startswith("store") else "collective"
