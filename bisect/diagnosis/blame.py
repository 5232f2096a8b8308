"""Who is at fault: the sinks of the graph of who waits for whom, the least advanced first."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from . import library

Progress = tuple[int, int]  # checkpoints finished, phases begun
T = TypeVar("T", bound=Hashable)


class Standing(NamedTuple, Generic[T]):
    """Who waits for others, and who only for itself or for nobody."""

    sinks: frozenset[T]  # from them only those can be reached that lead back to them
    waiting: frozenset[T]  # from them somebody else can be reached; a ring's members are in both


def standing(waits: Mapping[T, Iterable[T]], counted: Iterable[T]) -> Standing[T]:
    """Return how those of `counted` stand to one another.

    `waits` says for each node what it waits for; nodes that are not counted only lead from one
    to another. A ring of nodes that wait for one another and for nobody else is a sink.
    """
    people, networkx = frozenset(counted), library.networkx()
    if networkx is None:
        return _by_hand(waits, people)
    graph = networkx.DiGraph()
    graph.add_nodes_from(people)
    graph.add_edges_from((node, other) for node, others in waits.items() for other in others)
    rings = networkx.condensation(graph)
    inside = {ring: people & members for ring, members in rings.nodes(data="members")}
    leads_on: dict[int, bool] = {}
    for ring in reversed(list(networkx.topological_sort(rings))):
        leads_on[ring] = any(leads_on[n] or inside[n] for n in rings.successors(ring))
    return Standing(
        frozenset(who for ring in inside if not leads_on[ring] for who in inside[ring]),
        frozenset(
            who
            for ring in inside
            if leads_on[ring] or len(inside[ring]) > 1
            for who in inside[ring]
        ),
    )


def _by_hand(waits: Mapping[T, Iterable[T]], people: frozenset[T]) -> Standing[T]:
    """Return the same without networkx, slowly: node by node."""
    reached: dict[T, frozenset[T]] = {}
    for start in people:
        passed, ahead = {start}, [start]
        while ahead:
            new = set(waits.get(ahead.pop(), ())) - passed
            passed |= new
            ahead += new
        reached[start] = people & passed - {start}
    return Standing(
        frozenset(who for who in people if all(who in reached[n] for n in reached[who])),
        frozenset(who for who in people if reached[who]),
    )


def sinks(needs: Mapping[T, Iterable[T]]) -> frozenset[T]:
    """Return those from which nothing can be reached that does not lead back to them.

    `needs` says for each for whom it waits. Whoever is not a key of `needs` is ignored.
    """
    known = {who: [n for n in others if n in needs] for who, others in needs.items()}
    return standing(known, known).sinks


def least_advanced(ranks: Iterable[int], progress: Mapping[int, Progress]) -> tuple[int, ...]:
    """Return those of `ranks` that came least far, in order."""
    candidates = sorted(ranks)
    if not candidates:
        return ()
    least = min(progress[rank] for rank in candidates)
    return tuple(rank for rank in candidates if progress[rank] == least)
