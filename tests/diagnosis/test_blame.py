"""Sinks of the graph of who waits for whom."""

from __future__ import annotations

import pytest
from hangbisect.diagnosis import library
from hangbisect.diagnosis.blame import least_advanced, sinks, standing
from hypothesis import given
from hypothesis import strategies as st

GRAPHS = st.dictionaries(
    st.integers(0, 7), st.frozensets(st.integers(0, 9), max_size=3), max_size=8
)


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ({0: {1}, 1: set()}, {1}),
        ({0: {1}, 1: {0}}, {0, 1}),
        ({0: {1}, 1: {2}, 2: {1}}, {1, 2}),
        ({0: {1}, 1: {0, 2}, 2: set()}, {2}),
        ({0: set(), 1: set()}, {0, 1}),
        ({0: {0}}, {0}),
        ({0: {9}}, {0}),
        ({}, set()),
    ],
)
def test_who_waits_for_somebody_else_is_no_sink(
    needs: dict[int, set[int]], expected: set[int]
) -> None:
    assert sinks(needs) == expected


def reached_from(start: int, waits: dict[int, frozenset[int]]) -> set[int]:
    """What `start` waits for, over any number of steps."""
    found: set[int] = set()
    ahead = list(waits.get(start, ()))
    while ahead:
        node = ahead.pop()
        if node not in found:
            found.add(node)
            ahead += waits.get(node, ())
    return found


@given(GRAPHS)
def test_sinks_are_those_from_which_all_ways_lead_back(needs: dict[int, frozenset[int]]) -> None:
    known = {who: frozenset(n for n in others if n in needs) for who, others in needs.items()}
    brute = {
        who for who in known if all(who in reached_from(n, known) for n in reached_from(who, known))
    }
    assert sinks(needs) == brute


@given(GRAPHS, st.frozensets(st.integers(0, 9)))
def test_things_between_ranks_are_passed_through(
    waits: dict[int, frozenset[int]], counted: frozenset[int]
) -> None:
    ways = {who: reached_from(who, waits) & counted for who in counted}
    found = standing(waits, counted)
    assert found.waiting == {who for who in counted if ways[who] - {who}}
    assert found.sinks == {who for who in counted if all(who in ways[n] for n in ways[who] - {who})}


@given(GRAPHS, st.frozensets(st.integers(0, 9)))
def test_it_is_the_same_without_networkx(
    waits: dict[int, frozenset[int]], counted: frozenset[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "networkx", lambda: None)
        by_hand = standing(waits, counted)
    assert standing(waits, counted) == by_hand


@given(GRAPHS)
def test_every_rank_leads_to_a_sink(needs: dict[int, frozenset[int]]) -> None:
    found = sinks(needs)
    for start in needs:
        assert (reached_from(start, needs) | {start}) & found


def test_the_least_advanced_are_all_that_came_equally_far() -> None:
    progress = {0: (8, 1), 1: (8, 0), 2: (8, 0), 3: (9, 0)}
    assert least_advanced([0, 1, 2, 3], progress) == (1, 2)
    assert least_advanced([], progress) == ()
