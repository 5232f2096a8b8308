"""What is computed of a directed graph: its strongly connected components, its sinks, and shortest
paths.

A graph is a mapping from each node to those that its edges lead to; a node that is no key has no
edges of its own. Nothing here recurses: a chain of ranks may be longer than Python's limit for it.
The order of each answer is that of the mapping, so that the same facts give the same verdict.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T", bound=Hashable)


def group_targets(edges: Iterable[tuple[T, T]]) -> dict[T, list[T]]:
    """Return the graph that has these edges."""
    graph: dict[T, list[T]] = {}
    for source, target in edges:
        graph.setdefault(source, []).append(target)
    return graph


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


class Standing(NamedTuple, Generic[T]):
    """Who waits for others, and who only for itself or for nobody."""

    sinks: frozenset[T]  # from them only those can be reached that lead back to them
    waiting: frozenset[T]  # from them somebody else can be reached; a ring's members are in both


def find_standing(waits: Mapping[T, Collection[T]], counted: Iterable[T]) -> Standing[T]:
    """Return how those of `counted` stand to one another.

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
    return Standing(frozenset(sinks), frozenset(waiting))


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
