"""What is computed of a graph, against the plain definition of it."""

from __future__ import annotations

import sys
from itertools import pairwise

import pytest
from hangbisect.diagnosis.wait_graph import (
    find_components,
    find_shortest_path,
    find_sinks,
    group_targets,
)
from hypothesis import given
from hypothesis import strategies as st

NODES = st.integers(0, 9)  # of which 8 and 9 have no edges of their own
GRAPHS = st.dictionaries(st.integers(0, 7), st.lists(NODES, max_size=3), max_size=8)
LONG = 10_000  # nodes, far more than calls may be nested


def reached_from(start: int, graph: dict[int, list[int]]) -> set[int]:
    """What can be reached from `start` by at least one edge."""
    found: set[int] = set()
    ahead = list(graph.get(start, ()))
    while ahead:
        node = ahead.pop()
        if node not in found:
            found.add(node)
            ahead += graph.get(node, ())
    return found


def nodes_of(graph: dict[int, list[int]]) -> set[int]:
    """The keys and whatever edges lead to."""
    return graph.keys() | {target for targets in graph.values() for target in targets}


def count_steps(graph: dict[int, list[int]], start: int, goal: int) -> int | None:
    """How many edges the shortest paths from `start` to `goal` have, None if there is no path."""
    reached = {start}
    for steps in range(len(nodes_of(graph)) + 1):
        if goal in reached:
            return steps
        reached |= {target for node in reached for target in graph.get(node, ())}
    return None


# ---- strongly connected components ----------------------------------------------------------


@given(GRAPHS)
def test_a_component_is_all_nodes_that_can_reach_one_another(graph: dict[int, list[int]]) -> None:
    found = find_components(graph)
    assert sorted(node for component in found for node in component) == sorted(nodes_of(graph))
    for component in found:
        for node in component:
            both_ways = {n for n in reached_from(node, graph) if node in reached_from(n, graph)}
            assert set(component) == both_ways | {node}


@given(GRAPHS)
def test_a_component_comes_after_all_that_can_be_reached_from_it(
    graph: dict[int, list[int]],
) -> None:
    before: set[int] = set()
    for component in find_components(graph):
        before |= set(component)
        assert all(reached_from(node, graph) <= before for node in component)


def test_components_come_in_the_order_of_the_graph() -> None:
    graph = {"e": ["d"], "b": ["c"], "c": ["a", "b"], "d": []}
    assert find_components(graph) == [["d"], ["e"], ["a"], ["b", "c"]]


def test_edges_are_grouped_in_their_order() -> None:
    assert group_targets([("b", "a"), ("a", "c"), ("b", "c")]) == {"b": ["a", "c"], "a": ["c"]}


# ---- who waits for whom ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        ({0: [1], 1: []}, {1}),
        ({0: [1], 1: [0]}, {0, 1}),
        ({0: [1], 1: [2], 2: [1]}, {1, 2}),
        ({0: [1], 1: [0, 2], 2: []}, {2}),
        ({0: [], 1: []}, {0, 1}),
        ({0: [0]}, {0}),
        ({0: [9]}, {0}),
        ({}, set()),
    ],
)
def test_who_waits_for_somebody_else_is_no_sink(
    waits: dict[int, list[int]], expected: set[int]
) -> None:
    assert find_sinks(waits, waits).sinks == expected


@given(GRAPHS, st.frozensets(NODES))
def test_things_between_ranks_are_passed_through(
    waits: dict[int, list[int]], counted: frozenset[int]
) -> None:
    ways = {who: reached_from(who, waits) & counted for who in counted}
    found = find_sinks(waits, counted)
    assert found.waiting == {who for who in counted if ways[who] - {who}}
    assert found.sinks == {who for who in counted if all(who in ways[n] for n in ways[who] - {who})}


@given(GRAPHS)
def test_every_rank_leads_to_a_sink(waits: dict[int, list[int]]) -> None:
    found = find_sinks(waits, waits).sinks
    for start in waits:
        assert (reached_from(start, waits) | {start}) & found


# ---- shortest paths -------------------------------------------------------------------------


@given(GRAPHS, st.lists(NODES, max_size=3), NODES)
def test_a_path_goes_along_edges_and_none_is_shorter(
    graph: dict[int, list[int]], starts: list[int], goal: int
) -> None:
    found = find_shortest_path(graph, starts, goal)
    steps = {s: n for s in starts if (n := count_steps(graph, s, goal)) is not None}
    assert bool(found) == bool(steps)
    if found:
        assert all(b in graph[a] for a, b in pairwise(found))
        assert len(found) - 1 == min(steps.values())
        assert found[0] == min(steps, key=lambda start: steps[start])  # the earliest of the nearest
        assert found[-1] == goal


def test_of_equally_short_paths_the_earliest_edges_are_taken() -> None:
    graph = {"a": ["c", "b"], "b": ["d"], "c": ["d"]}
    assert find_shortest_path(graph, ["a"], "d") == ["a", "c", "d"]


# ---- size -----------------------------------------------------------------------------------


def test_a_chain_and_a_ring_of_any_length_are_walked() -> None:
    assert sys.getrecursionlimit() < LONG
    chain = {n: [n + 1] for n in range(LONG)}
    ring = {**chain, LONG: [0]}
    assert find_components(chain) == [[n] for n in reversed(range(LONG + 1))]
    assert find_components(ring) == [list(range(LONG + 1))]
    assert find_sinks(chain, ring).sinks == {LONG}
    assert find_sinks(ring, ring).sinks == ring.keys()
    assert find_shortest_path(ring, [1], 0) == [*range(1, LONG + 1), 0]
