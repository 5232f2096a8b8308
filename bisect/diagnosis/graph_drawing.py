"""The nodes and edges of a wait-for graph while it is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..base.identity import ProcessId, RankId
from ..base.rank_facts import RankFacts
from ..base.verdict_facts import Edge, Wait, WaitKind
from .wait_graph import Node, NodeKind, ProcessKey, WaitGraph, WeightedEdge


class GraphDrawing:
    """Nodes and edges so far. A second edge between the same nodes is ignored."""

    def __init__(self, ranks: Sequence[RankFacts]) -> None:
        """`ranks`: of the job. If they run on several machines, names of nodes end in "on HOST"."""
        self._several = len({facts.host for facts in ranks if facts.looks}) > 1
        self.nodes: dict[str, Node] = {}
        self._links: dict[tuple[str, str], WeightedEdge] = {}
        self.waits: dict[ProcessKey, Wait] = {}
        self._one_of: dict[str, Sequence[str]] = {}

    def node(self, name: str, kind: NodeKind, says: str = "", rank: RankId | None = None) -> str:
        """Add a node; return its name."""
        self.nodes.setdefault(name, Node(name, kind, says, rank))
        return name

    def process(self, process: ProcessId, says: str, rank: RankId | None) -> str:
        """Add the node of a process; return its name."""
        name = self.name_on(process.host, f"process {process.pid}")
        self.nodes.setdefault(name, Node(name, "process", says, rank, process=process))
        return name

    def name_on(self, host: str, name: str) -> str:
        """Return the name of what is one machine's own: "process 4711", "process 4711 on n2"."""
        return f"{name} on {host}" if self._several and host else name

    def note_waits_for_nothing(self, name: str) -> None:
        """Note that a process waits for nothing of the job."""
        self.nodes[name] = replace(self.nodes[name], waits_for_nothing=True)

    def link(
        self,
        source: str,
        target: str,
        kind: WaitKind,
        evidence: str,
        firm: bool = True,
        hard: bool = False,
        likely: bool = False,
    ) -> None:
        """Add an edge between two nodes (`WeightedEdge` says what firm, hard and likely mean); of
        several the first one, or the first one that is hard.
        """
        link = WeightedEdge(Edge(source, target, kind, evidence), firm, hard, likely)
        known = self._links.setdefault((source, target), link)
        if hard and not known.hard:
            self._links[source, target] = link

    def is_free(self, name: str, says: str) -> bool:
        """Return whether no node that says something else has this name."""
        return name not in self.nodes or self.nodes[name].says == says

    def leads_elsewhere(self, name: str, target: str) -> bool:
        """Return whether edges go from a node, and none of them to `target`."""
        targets = {end for source, end in self._links if source == name}
        return bool(targets) and target not in targets

    def one_of(self, lock: str, holders: Sequence[str]) -> None:
        """Note that one of these threads has a lock, and that it is not known which."""
        self._one_of.setdefault(lock, tuple(holders))

    def graph(self, blamable: Iterable[RankId]) -> WaitGraph:
        """Return what was drawn; `blamable` as of `WaitGraph`."""
        return WaitGraph(
            self.nodes.values(), self._links.values(), blamable, self.waits, self._one_of
        )
