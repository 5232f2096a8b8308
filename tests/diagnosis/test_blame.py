"""Sinks of the graph of who waits for whom."""

from __future__ import annotations

import pytest
from hangbisect.diagnosis.blame import least_advanced, sinks
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
        ({0: {9}}, {0}),
        ({}, set()),
    ],
)
def test_who_waits_for_somebody_else_is_no_sink(
    needs: dict[int, set[int]], expected: set[int]
) -> None:
    assert sinks(needs) == expected


@given(GRAPHS)
def test_every_rank_leads_to_a_sink(needs: dict[int, frozenset[int]]) -> None:
    found = sinks(needs)
    for start in needs:
        reached, ahead = {start}, [start]
        while ahead:
            for rank in needs[ahead.pop()]:
                if rank in needs and rank not in reached:
                    reached.add(rank)
                    ahead.append(rank)
        assert reached & found
        if start in found:
            assert reached <= found


def test_the_least_advanced_are_all_that_came_equally_far() -> None:
    progress = {0: (8, 1), 1: (8, 0), 2: (8, 0), 3: (9, 0)}
    assert least_advanced([0, 1, 2, 3], progress) == (1, 2)
    assert least_advanced([], progress) == ()
