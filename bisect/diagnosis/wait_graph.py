"""The wait-for graph: who waits for whom and on what, with the evidence of every edge; and what is
computed of a directed graph (its strongly connected components, its sinks, shortest paths).

Nodes are named as in `facts.Edge`: "rank 3", "process 4711", "lock /tmp/x.lock", "10.0.0.1:443",
"collective all_reduce"; no two have one name. `graph_builder` makes it from a case.

At fault are the sinks of this graph, the least advanced first. For computing, a graph is a mapping
from each node to those that its edges lead to; a node that is no key has no edges of its own.
Nothing here recurses: a chain of ranks may be longer than Python's limit for it. The order of each
answer is that of the mapping, so that the same facts give the same verdict.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import pairwise
from typing import Generic, Literal, NamedTuple, TypeVar

from ..base.identity import ProcessId, RankId, name_rank
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Look
from ..base.schema_types import INSIDE
from ..base.verdict_facts import WAITS_FOR_RANKS, Edge, Wait

NodeKind = Literal[
    "rank",
    "absent rank",
    "process",
    "thread",
    "collective",
    "barrier",
    "store",
    "lock",
    "peer",
    "pipe",
    "file",
    "device",
    "other",
]
ProcessKey = tuple[RankId, int]  # the rank that a process is or belongs to, and its pid


@dataclass(frozen=True)
class Node:
    """A rank, a process, a thread, or a thing that is waited for."""

    name: str
    kind: NodeKind
    says: str = ""  # for people: "wandb-core, of rank 0"
    rank: RankId | None = None  # the rank that it is, or to which the process or thread belongs
    # Of a process: the chain of waits stops here, and its rank is to blame.
    waits_for_nothing: bool = field(default=False, metadata={"older": "ends"})
    # Of a process, who it is.
    process: ProcessId | None = field(default=None, compare=False, metadata=INSIDE)


@dataclass(frozen=True)
class WeightedEdge:
    """An edge, and how much it proves.

    `firm`: the source cannot go on before the target does, so the target may be to blame.
    `hard`: the kernel says so: a lock has a holder, a child is waited for, a pipe is full.
    `likely`: frames say so: a thread stands between the line that takes a lock and its end.
    """

    edge: Edge
    firm: bool = True
    hard: bool = False
    likely: bool = False


@dataclass(frozen=True)
class Ring:
    """A deadlock: each waits for the next, the last one for the first."""

    edges: tuple[Edge, ...]
    ranks: frozenset[RankId]  # all that are part of it, also by a child
    sure: bool = True  # the kernel vouches for each edge that is no meeting of ranks

    @property
    def is_of_connections(self) -> bool:
        """Whether each waits for what the next is to send: one of them may stand elsewhere."""
        return all(edge.kind == "socket" for edge in self.edges)


class WaitGraph:
    """Who waits for what."""

    def __init__(
        self,
        nodes: Iterable[Node],
        links: Iterable[WeightedEdge],
        blamable: Iterable[RankId],
        waits: Mapping[ProcessKey, Wait] | None = None,
        one_of: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """`blamable`: the ranks that count when it is asked whose fault it is. `waits`: what each
        process waits for that the graph was drawn of. `one_of`: the threads one of which has a
        lock, by the lock's node.
        """
        self._one_of = dict(one_of or {})
        self.waits = dict(waits or {})
        self.nodes = {node.name: node for node in nodes}
        self.links = {(link.edge.source, link.edge.target): link for link in links}
        self._blamable = frozenset(blamable)

    @property
    def edges(self) -> tuple[Edge, ...]:
        """All edges."""
        return tuple(link.edge for link in self.links.values())

    def list_awaited(self) -> dict[ProcessId, list[ProcessId]]:
        """Return by process the next ones for which it waits, as the edges lead there: at once, or
        by the one thing between them (a pipe, a connection, a lock); those first that were drawn
        last.
        """
        behind = {
            edge.source: process
            for edge in self.edges
            if (process := self.nodes[edge.target].process) is not None
        }
        found: dict[ProcessId, list[ProcessId]] = {}
        for edge in self.edges:
            source = self.nodes[edge.source].process
            target = self.nodes[edge.target].process or behind.get(edge.target)
            if source is not None and target is not None and source != target:
                found.setdefault(source, []).insert(0, target)
        return found

    def find_wait(self, rank: RankId, look: Look) -> Wait:
        """Return what a process waits for: what the verdict has found; of one that it did not come
        to what this look at it tells.
        """
        # Not at the top: nearly all jobs end well, and their ranks would wait for it.
        from .process.blocking_reason import find_reason_in_look

        return self.waits.get((rank, look.pid)) or find_reason_in_look(look, rank)

    @property
    def sinks(self) -> frozenset[RankId]:
        """The ranks at which chains of waits stop."""
        return self._sinks_and_waiting.sinks

    @property
    def waiting(self) -> frozenset[RankId]:
        """The ranks that wait for others."""
        return self._sinks_and_waiting.waiting

    @cached_property
    def _sinks_and_waiting(self) -> SinksAndWaiting[RankId]:
        waits = group_targets(pair for pair, link in self.links.items() if link.firm)
        names = {name_rank(rank): rank for rank in self._blamable}
        for name, owner in self._owned():
            if not self.nodes[name].waits_for_nothing:
                waits.setdefault(name, []).append(owner)
            elif owner in names:
                names[name] = names[owner]
        found = find_sinks(waits, names)
        return SinksAndWaiting(
            frozenset(names[name] for name in found.sinks),
            frozenset(names[name] for name in found.waiting),
        )

    @cached_property
    def awaited(self) -> frozenset[RankId]:
        """The ranks for which others wait, or for a process or a thread of theirs: at once, or by
        the one thing between them.
        """
        firm = [pair for pair, link in self.links.items() if link.firm]
        ranks = {name: node.rank for name, node in self.nodes.items() if node.rank is not None}
        waiting: dict[str, set[RankId]] = {}
        for source, target in firm:
            if source in ranks:
                waiting.setdefault(target, set()).add(ranks[source])
        for source, target in firm:
            if source not in ranks and target in ranks:
                waiting.setdefault(target, set()).update(waiting.get(source, ()))
        return frozenset(
            rank for name, rank in ranks.items() if waiting.get(name, set[RankId]()) - {rank}
        )

    @cached_property
    def responsible_ranks(self) -> dict[RankId, Node]:
        """The ranks that answer for a process that others wait for and that waits for nobody."""
        last = (node for node in self.nodes.values() if node.waits_for_nothing)
        return {node.rank: node for node in last if node.rank is not None}

    @cached_property
    def _ahead(self) -> dict[str, list[str]]:
        """The targets of each node, in the order in which they were drawn."""
        found: dict[str, list[str]] = {name: [] for name in self.nodes}
        for source, target in self.links:
            found[source].append(target)
        return found

    @cached_property
    def deadlocks(self) -> tuple[Ring, ...]:
        """Every ring that is more than ranks meeting: one that a lock, a pipe or a child closes,
        all of whose edges are meetings, the kernel's word or what frames show.

        Where one of several threads has a lock, all of them wait in the ring: whichever it is does
        not go on.
        """
        rings = []
        proven = group_targets(pair for pair, link in self.links.items() if _counts(link))
        proven |= {lock: list(threads) for lock, threads in self._one_of.items()}
        proven = keep_waiting_for_ever(proven, self._one_of)
        for component in find_components(proven):
            members = frozenset(component)
            among = {a: [b for b in proven.get(a, ()) if b in members] for a in component}
            pairs = ((a, b) for a, targets in among.items() for b in targets)
            inside = [link.edge for pair in pairs if (link := self.links[pair]).hard or link.likely]
            if inside:
                first = min(inside, key=lambda e: (e.kind != "lock", e.source, e.target))
                back = find_shortest_path(among, [first.target], first.source)
                rings.append(self._ring([*back, first.target], members))
        return tuple(sorted(rings, key=lambda ring: sorted(ring.ranks)))

    def _ring(self, path: Sequence[str], members: frozenset[str]) -> Ring:
        ranks = frozenset(r for name in members if (r := self.nodes[name].rank) is not None)
        links = [self.links[pair] for pair in pairwise(path)]
        edges = _rotate_ring(tuple(link.edge for link in links))
        return Ring(edges, ranks, not any(link.likely for link in links))

    def chain(self, waiting: Sequence[RankId], culprits: Sequence[RankId]) -> tuple[Edge, ...]:
        """Return the edges from one of `waiting` over the first culprit to what is waited for in
        the end; in a deadlock once around.
        """
        culprit = next((n for n in map(name_rank, culprits) if n in self.nodes), None)
        if culprit is None:
            first = next((n for n in map(name_rank, waiting) if n in self.nodes), None)
            return tuple(self._onward(first, set())) if first else ()
        ring = next((r for r in self.deadlocks if any(e.source == culprit for e in r.edges)), None)
        if ring is not None:
            before = self._to(culprit, [rank for rank in waiting if rank not in ring.ranks])
            return (*before, *_rotate_ring(ring.edges, culprit))
        into = self._into_a_ring(culprit)
        if into:
            return (*self._to(culprit, waiting), *into)
        before = self._to(culprit, waiting)
        if before and self.nodes[before[-1].source].waits_for_nothing:
            culprit = before.pop().source  # a process of its own, which does not wait for it
        return (*before, *self._onward(culprit, {edge.source for edge in before}))

    def _into_a_ring(self, culprit: str) -> tuple[Edge, ...]:
        """Return the edges from a rank to a ring of its threads, and once around; () for none."""
        for ring in self.deadlocks:
            for start in dict.fromkeys(edge.source for edge in ring.edges):
                path = find_shortest_path(self._ahead, [culprit], start)
                inside = {edge.source for edge in ring.edges}
                if path and not inside & set(path[:-1]):
                    way = (self.links[pair].edge for pair in pairwise(path))
                    return (*way, *_rotate_ring(ring.edges, start))
        return ()

    def _to(self, culprit: str, waiting: Sequence[RankId]) -> list[Edge]:
        """Return a shortest way from one of `waiting` to `culprit`, [] if there is none."""
        waits = group_targets((*self.links, *self._owned()))
        starts = [name for rank in waiting if (name := name_rank(rank)) != culprit]
        path = find_shortest_path(waits, starts, culprit)
        return [
            self.links[pair].edge
            if pair in self.links
            else Edge(*pair, "process", f"it is part of {pair[1]}")
            for pair in pairwise(path)
        ]

    def _owned(self) -> Iterator[tuple[str, str]]:
        """Yield each process and thread with the rank that answers for it."""
        for node in self.nodes.values():
            if node.rank is not None and node.kind in ("process", "thread"):
                yield node.name, name_rank(node.rank)

    def _onward(self, name: str, passed: set[str]) -> Iterator[Edge]:
        """Yield the edges from `name` on, as long as they lead to something new."""
        while name not in passed:
            passed.add(name)
            edges = [self.links[name, target].edge for target in self._ahead[name]]
            # Of those that are in the same collective it would be chance who is named.
            edges = [e for e in edges if e.target not in passed and not self._is_there(e)]
            if not edges:
                return
            yield edges[0]
            name = edges[0].target

    def _is_there(self, edge: Edge) -> bool:
        """Return True if a meeting waits for a rank that is at the same meeting."""
        meets = self.nodes[edge.source].kind in ("collective", "store")
        return meets and (edge.target, edge.source) in self.links


def _counts(link: WeightedEdge) -> bool:
    """Return whether an edge may be part of a ring; one of nothing but meetings of ranks is one
    collective, or two.
    """
    return link.hard or link.likely or link.edge.kind in WAITS_FOR_RANKS


def _rotate_ring(edges: tuple[Edge, ...], start: str | None = None) -> tuple[Edge, ...]:
    """Return a ring of edges so that it begins at `start`, else at the rank that sorts first."""
    names = [edge.source for edge in edges]
    begin = start or min((n for n in names if n.startswith("rank ")), default=names[0])
    first = names.index(begin)
    return (*edges[first:], *edges[:first])


T = TypeVar("T", bound=Hashable)


def group_targets(edges: Iterable[tuple[T, T]]) -> dict[T, list[T]]:
    """Return the graph that has these edges."""
    graph: dict[T, list[T]] = {}
    for source, target in edges:
        graph.setdefault(source, []).append(target)
    return graph


def keep_waiting_for_ever(
    graph: Mapping[T, Collection[T]], one_of: Collection[T]
) -> dict[T, list[T]]:
    """Return of `graph` the nodes that never go on: each waits for one that does not either; those
    of `one_of` for somebody among their targets, so all of these must be such.
    """
    kept = {node: list(targets) for node, targets in graph.items()}
    while True:
        free = [
            node
            for node, targets in kept.items()
            if not (all if node in one_of else any)(target in kept for target in targets)
        ]
        if not free:
            return kept
        for node in free:
            del kept[node]


def find_components(graph: Mapping[T, Collection[T]]) -> list[list[T]]:
    """Return the strongly connected components, each after all those that can be reached from it.

    This is Tarjan's algorithm, with a stack of its own in place of recursion.
    """
    found: list[list[T]] = []
    number: dict[T, int] = {}  # of each node, in the order in which they are first reached
    lowest: dict[T, int] = {}  # the lowest number in its component, as far as that is known
    pending: dict[T, None] = {}  # reached, and in no component yet, in that order
    for start in graph:
        path: list[tuple[T, Iterator[T]]] = [] if start in number else [(start, iter(graph[start]))]
        while path:
            node, targets = path[-1]
            if node not in number:
                number[node] = lowest[node] = len(number)
                pending[node] = None
            for target in targets:
                if target not in number:
                    path.append((target, iter(graph.get(target, ()))))
                    break
                if target in pending:
                    lowest[node] = min(lowest[node], lowest[target])
            else:
                path.pop()
                if path:
                    before = path[-1][0]
                    lowest[before] = min(lowest[before], lowest[node])
                if lowest[node] == number[node]:
                    found.append(_take_from(pending, node))
    return found


def _take_from(pending: dict[T, None], first: T) -> list[T]:
    """Take `first` and all that came after it out of `pending`; return them in that order."""
    taken: list[T] = []
    while first in pending:
        taken.append(pending.popitem()[0])
    return taken[::-1]


class SinksAndWaiting(NamedTuple, Generic[T]):
    """Who waits for others, and who only for itself or for nobody."""

    sinks: frozenset[T]  # from them only those can be reached that lead back to them
    waiting: frozenset[T]  # from them somebody else can be reached; a ring's members are in both


def find_sinks(waits: Mapping[T, Collection[T]], counted: Iterable[T]) -> SinksAndWaiting[T]:
    """Return which of `counted` are sinks, and which wait for others of them.

    `waits` says for each node what it waits for; nodes that are not counted only lead from one
    to another. A ring of nodes that wait for one another and for nobody else is a sink.
    """
    people = frozenset(counted)
    sinks: set[T] = set()
    waiting: set[T] = set()
    leads: dict[T, bool] = {}  # whether a node is counted, or one that is can be reached from it
    for component in find_components({**dict.fromkeys(people, ()), **waits}):
        inside = people.intersection(component)
        # What can be reached from here and is not of this component has its answer already.
        onward = any(leads.get(to, False) for node in component for to in waits.get(node, ()))
        leads |= dict.fromkeys(component, onward or bool(inside))
        if not onward:
            sinks |= inside
        if onward or len(inside) > 1:
            waiting |= inside
    return SinksAndWaiting(frozenset(sinks), frozenset(waiting))


def find_shortest_path(graph: Mapping[T, Collection[T]], starts: Iterable[T], goal: T) -> list[T]:
    """Return the nodes of a shortest path from one of `starts` to `goal`, both included, [] if
    there is none. Of equally long ones it is that from the earliest start, by the earliest edges.
    """
    before = {start: start for start in starts}
    reached = list(before)
    for node in reached:  # it grows meanwhile
        if goal in before:
            break
        new = [target for target in dict.fromkeys(graph.get(node, ())) if target not in before]
        before |= dict.fromkeys(new, node)
        reached += new
    if goal not in before:
        return []
    path = [goal]
    while before[path[-1]] != path[-1]:
        path.append(before[path[-1]])
    return path[::-1]
