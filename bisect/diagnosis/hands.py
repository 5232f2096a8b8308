"""What a process waits for at the hands of others: files that are locked, pipes, peers, children,
threads; and what those wait for in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..facts import Look, RankFacts, Wait, WaitKind
from .drawing import Drawing
from .frames import worded
from .graph import NodeKind
from .hops import Context, hop_of_child
from .mutexes import Threads
from .people import People
from .syscalls import CHILDREN
from .traffic import carried
from .view import Seen, seen

# What a process waits for at nobody's hands.
_BY_ITSELF = frozenset(["stopped", "sleep", "kernel", "file", "device", "input"])
_WRITES = frozenset(["write", "writev", "pwrite64", "sendto", "sendmsg", "splice", "sendfile"])
# What nothing can be said of but its kind.
_NOBODY: dict[WaitKind, str] = {
    "sleep": "the end of a sleep",
    "itself": "its own work",
    "kernel": "the kernel",
    "stopped": "whoever stopped it",
    "input": "somebody to type",
    "unknown": "something unknown",
    "thread": "a thread of its own",
    "futex": "a futex",
    "gil": "the GIL",
    "collective": "its peers",
}
# The kind of the node, and the word before its name.
_THINGS: dict[WaitKind, tuple[NodeKind, str]] = {
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
    view: Seen
    own: bool


class Hands:
    """Draws the edges of processes, one after another, as far as they lead."""

    def __init__(self, drawing: Drawing, ranks: Sequence[RankFacts], everyone: People) -> None:
        self._drawing, self._people = drawing, everyone
        self._ranks = {r.pid: r.rank for r in ranks if r.pid is not None}
        self._children = {
            looks[-1].pid: (facts, looks) for facts in ranks for looks in facts.children if looks
        }
        self._held = _held(ranks)
        self._drawn: set[int] = set()
        self._ahead: list[int] = []  # children that somebody waits for

    def of_rank(self, facts: RankFacts, wait: Wait) -> None:
        """Draw what a rank's own process waits for."""
        view = seen(facts.looks)
        if view is not None:
            self._draw(_Process(f"rank {facts.rank}", facts, facts.looks, view, own=True), wait)

    def follow(self) -> None:
        """Draw what those wait for that were reached."""
        while self._ahead:
            pid = self._ahead.pop()
            facts, looks = self._children[pid]
            view = seen(looks)
            if pid not in self._drawn and view is not None:
                self._drawn.add(pid)
                wait = hop_of_child(looks, Context(facts, self._people))
                outside = wait.kind == "socket" and wait.pid not in self._people.rank_of
                if outside or wait.kind in _BY_ITSELF:
                    self._drawing.ends(f"process {pid}")
                self._draw(_Process(f"process {pid}", facts, looks, view, own=False), wait)

    def _draw(self, process: _Process, wait: Wait) -> None:
        view, draw = process.view, self._drawing
        if Threads(draw, process.name, process.facts, view.look).of_main(view, wait):
            return
        if wait.kind == "process":
            self._child(process, wait)
        elif wait.kind in _THINGS:
            self._thing(process, wait)
        else:
            nobody = draw.node(_NOBODY.get(wait.kind, wait.kind), "other")
            draw.link(process.name, nobody, wait.kind, wait.detail or _at(view))

    def _child(self, process: _Process, wait: Wait) -> None:
        if wait.pid is None:
            child = self._drawing.node(f"a child of {process.name}", "process")
        else:
            child = self._someone(wait.pid, wait.process or "")
        # The end of a child, or only what it has to say?
        hard = process.view.call_name in CHILDREN
        self._drawing.link(process.name, child, "process", _at(process.view), hard=hard)

    def _thing(self, process: _Process, wait: Wait) -> None:
        """Draw the edge to a thing, and from there to whoever has it or is behind it."""
        kind, word = _THINGS[wait.kind]
        thing = self._drawing.node(f"{word} {wait.what or wait.detail or kind}".strip(), kind)
        pid = wait.pid
        if pid is None and kind == "lock":
            pid = self._held.get(wait.what)
        # A reader may be idle; a writer, and who wants a lock, waits for whoever is behind it.
        writes = kind == "pipe" and process.view.call_name in _WRITES
        hard = pid is not None and (kind == "lock" or writes)
        shows = ""
        if kind in ("peer", "store"):
            shows = carried(process.looks, wait, process.facts.environment)
        # What a child was told to wait for by a peer is no reason to blame that peer's rank.
        firm = process.own or kind == "lock"
        self._drawing.link(process.name, thing, wait.kind, shows or _at(process.view), firm, hard)
        if pid is not None:
            name = wait.process or self._people.names.get(pid, "")
            called = f"{name} ({pid})" if name else f"process {pid}"
            has = "has it" if kind == "lock" else "is at its other end"
            who = self._someone(pid, name)
            self._drawing.link(thing, who, wait.kind, f"{called} {has}", hard=hard)

    def _someone(self, pid: int, name: str) -> str:
        """Return the node of a process; one of the job's own is followed further."""
        if pid in self._ranks:
            return f"rank {self._ranks[pid]}"
        rank = self._people.rank_of.get(pid)
        says = ", ".join(filter(None, [name, f"of rank {rank}" if rank is not None else ""]))
        if pid in self._children:
            self._ahead.append(pid)
        return self._drawing.node(f"process {pid}", "process", says, rank)


def _at(view: Seen) -> str:
    """Return in words where a process is: "futex in Condition.wait (threading.py:327)"."""
    frame = next((worded(f) for f in view.frames if not f.native), "")
    return " in ".join(part for part in (view.call_name or view.wchan, frame) if part)


def _held(ranks: Sequence[RankFacts]) -> dict[str, int]:
    """Return which process of the job has a lock, by the file's path."""
    return {
        lock.path: looks[-1].pid
        for facts in ranks
        for looks in (facts.looks, *facts.children)
        if looks
        for lock in looks[-1].holds
        if lock.path
    }
