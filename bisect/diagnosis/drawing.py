"""The wait-for graph while it is made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..facts import Edge, WaitKind
from .graph import Link, Node, NodeKind, WaitGraph


class Drawing:
    """Nodes and edges so far. What is drawn twice stays as it was drawn first."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self._links: dict[tuple[str, str], Link] = {}

    def node(self, name: str, kind: NodeKind, says: str = "", rank: int | None = None) -> str:
        """Add a node; return its name."""
        self.nodes.setdefault(name, Node(name, kind, says, rank))
        return name

    def ends(self, name: str) -> None:
        """Note that a process waits for nothing of the job (`Node.ends`)."""
        self.nodes[name] = replace(self.nodes[name], ends=True)

    def link(
        self,
        source: str,
        target: str,
        kind: WaitKind,
        evidence: str,
        firm: bool = True,
        hard: bool = False,
    ) -> None:
        """Add an edge between two nodes (`Link` says what firm and hard mean)."""
        link = Link(Edge(source, target, kind, evidence), firm, hard)
        self._links.setdefault((source, target), link)

    def graph(self, blamable: Iterable[int]) -> WaitGraph:
        """Return what was drawn; `blamable` as of `WaitGraph`."""
        return WaitGraph(self.nodes.values(), self._links.values(), blamable)
