"""The wait-for graph of a case: from where each rank is, edges with their evidence."""

from __future__ import annotations

from ..facts import RankFacts, WaitKind
from .case import Case
from .drawing import Drawing
from .graph import NodeKind, WaitGraph
from .hands import Hands
from .peers import Situation, is_gone
from .people import people

Meeting = tuple[str, frozenset[int]]


def graph_of(case: Case) -> WaitGraph:
    """Return who waits for what in `case`: ranks, and whatever processes and things lie between
    them and behind them.
    """
    return _Ranks(case).graph()


class _Ranks:
    """Draws where each rank is, and leaves to `Hands` what lies behind that."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._drawing = Drawing()
        self._named = frozenset(case.by_rank) | frozenset(case.absent)
        self._meetings: dict[Meeting, str] = {}
        self._hands = Hands(self._drawing, case.ranks, people(case.ranks))

    def graph(self) -> WaitGraph:
        case, draw = self._case, self._drawing
        for facts in case.ranks:
            process = f"{facts.host} pid {facts.pid}".strip() if facts.pid is not None else ""
            kind: NodeKind = "absent rank" if facts.never_started else "rank"
            draw.node(f"rank {facts.rank}", kind, process, facts.rank)
        for rank in case.absent:
            draw.node(f"rank {rank}", "absent rank", "nobody started it", rank)
        for facts in case.ranks:
            self._rank(facts, case.found[facts.rank])
        self._hands.follow()
        return draw.graph({r.rank for r in case.ranks if not r.finished} | set(case.absent))

    def _rank(self, facts: RankFacts, found: Situation) -> None:
        if is_gone(facts) or found.wait is None:
            return
        name = f"rank {facts.rank}"
        if found.place:
            self._meets(name, facts, found)
        elif found.needs and found.wait.kind in ("rank", "absent_rank"):
            for rank in sorted(found.needs & self._named):
                said = f"it said that it waits for rank {rank}"
                self._drawing.link(name, f"rank {rank}", found.wait.kind, said)
        else:
            self._hands.of_rank(facts, found.hop or found.wait)

    def _meets(self, name: str, facts: RankFacts, found: Situation) -> None:
        """A place where ranks meet lies between those that are there and those that are not."""
        place = self._place(found)
        kind: WaitKind = "rank"
        shows = f"it has finished checkpoint {facts.reached}, and is held until all have"
        if not facts.held and found.hop is not None:
            kind = found.hop.kind if found.hop.kind in ("collective", "store") else "collective"
            shows = found.hop.detail or found.hop.kind
        self._drawing.link(name, place, kind, shows)

    def _place(self, found: Situation) -> str:
        meeting = (found.place, found.whom)
        if meeting in self._meetings:
            return self._meetings[meeting]
        same = sum(place == found.place for place, _ in self._meetings)
        name = f"{found.place} ({same + 1})" if same else found.place
        self._meetings[meeting] = self._drawing.node(name, _kind_of(found.place))
        for rank in sorted(found.whom & self._named):
            absent = self._drawing.nodes[f"rank {rank}"].kind == "absent rank"
            kind: WaitKind = "absent_rank" if absent else "rank"
            self._drawing.link(name, f"rank {rank}", kind, self._whereabouts(rank, found.place))
        if found.away:
            others = self._drawing.node("ranks of other nodes", "other")
            self._drawing.link(name, others, "absent_rank", "they are not seen from here")
        return name

    def _whereabouts(self, rank: int, place: str) -> str:
        """Say of a rank why the others still wait for it."""
        facts = self._case.facts(rank)
        if facts is None or facts.never_started:
            return f"rank {rank} never came"
        if is_gone(facts):
            left = f", with status {facts.status}" if facts.status is not None else ""
            return f"rank {rank} has left{left}"
        there = self._case.found[rank].place
        if there == place:
            return f"rank {rank} is in it as well"
        return f"rank {rank} is not there" + (f": it is in {there}" if there else "")


def _kind_of(place: str) -> NodeKind:
    if place.startswith("our barrier"):
        return "barrier"
    return "store" if place.startswith("store") else "collective"
