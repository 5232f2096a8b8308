"""Simulated clusters: nodes and links that make starts fail, for the search and its tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from hangbisect.search.node_search import NodeSearchEnd, search_nodes
from hangbisect.search.node_starts import NodeSet, Round, SetResult

MOST_ROUNDS = 2000  # a search that takes more does not end


def name_nodes(count: int) -> tuple[str, ...]:
    """Return names as clusters have them."""
    return tuple(f"n{number:04}" for number in range(1, count + 1))


@dataclass(frozen=True)
class Cluster:
    """What fails on it, each time with the chance `rate`."""

    nodes: tuple[str, ...]
    alone: NodeSet = frozenset()  # bad nodes that fail alone
    company: NodeSet = frozenset()  # bad nodes that fail with any other
    links: frozenset[NodeSet] = frozenset()
    size: int = 0  # from so many nodes on it fails, 0: at any number it does not
    together: NodeSet = frozenset()  # three nodes or more that fail together
    rate: float = 1.0

    def result(self, nodes: NodeSet, random: Random) -> SetResult:
        """Return what comes of a start on these nodes."""
        faults = [
            bool(self.alone & nodes),
            len(nodes) > 1 and bool(self.company & nodes),
            *(link <= nodes for link in self.links),
            0 < self.size <= len(nodes),
            bool(self.together) and self.together <= nodes,
        ]
        shows = any(fault and random.random() < self.rate for fault in faults)
        return "fail" if shows else "pass"


@dataclass
class Searched:
    """A search to its end."""

    cluster: Cluster
    end: NodeSearchEnd
    rounds: list[Round] = field(default_factory=list)

    @property
    def nodes(self) -> NodeSet:
        """The nodes that are named."""
        return self.end.findings.bad_nodes

    @property
    def is_exact(self) -> bool:
        """Whether it named what is bad, all of it, and nothing else."""
        bad = self.cluster.alone | self.cluster.company
        links = set(self.end.findings.links)
        return self.nodes == bad and links == self.cluster.links

    @property
    def is_wrong(self) -> bool:
        """Whether it named what is not bad."""
        bad = self.cluster.alone | self.cluster.company
        return not (self.nodes <= bad and set(self.end.findings.links) <= self.cluster.links)


def search_cluster(cluster: Cluster, seed: int = 0, repeats: int = 1, confirm: int = 3) -> Searched:
    """Return the search on a cluster to its end."""
    random = Random(seed)
    search = search_nodes(cluster.nodes, repeats=repeats, confirm=confirm)
    rounds: list[Round] = []
    asked = next(search)
    while len(rounds) < MOST_ROUNDS:
        rounds.append(asked)
        try:
            asked = search.send([cluster.result(one, random) for one in asked])
        except StopIteration as end:
            return Searched(cluster, end.value, rounds)
    raise RuntimeError(f"no end after {MOST_ROUNDS} rounds: {cluster}")


def draw_links(random: Random, nodes: Sequence[str], count: int) -> frozenset[NodeSet]:
    """Return different links between these nodes."""
    links: set[NodeSet] = set()
    while len(links) < count:
        links.add(frozenset(random.sample(nodes, 2)))
    return frozenset(links)
