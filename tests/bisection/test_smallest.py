"""The smallest set is found by halves."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from math import ceil, log2

import pytest
from hangbisect.search.minimal_set import find_smallest
from hangbisect.search.search import drive_search
from hangbisect.search.trial_results import Ask, Steps
from hypothesis import given
from hypothesis import strategies as st

ORDER = "abcdefghijklmnopqrstuvwxyz"


def asked(order: str, needed: AbstractSet[str], first: int = 0) -> tuple[str, list[str]]:
    """Return the smallest part of `order` with all of `needed`, and what was asked on the way."""
    questions: list[str] = []

    def holds(names: frozenset[str]) -> Steps[bool]:
        questions.append("".join(sorted(names)))
        yield Ask({}, "")  # as every search does
        return needed <= names

    found = drive_search(find_smallest(order, holds, first), lambda ask: "pass")
    assert found is not None
    return "".join(sorted(found)), questions


@given(st.integers(1, 26), st.sets(st.sampled_from(ORDER), min_size=1), st.integers(0, 26))
def test_it_asks_little_for_each_name(toggles: int, some: set[str], first: int) -> None:
    order = ORDER[:toggles]
    needed = (some & set(order)) or {order[-1]}
    found, questions = asked(order, needed, first)
    assert set(found) == needed
    assert len(questions) <= len(needed) * (ceil(log2(toggles)) + 1) + (first > 0)


def test_one_name_is_found_without_a_question() -> None:
    assert asked("a", {"a"}) == ("a", [])


def test_the_first_names_are_tried_first() -> None:
    assert asked("abcdefgh", {"c"}, first=3)[1][0] == "abc"


@pytest.mark.parametrize("first", [8, 20])
def test_all_names_are_not_tried_again(first: int) -> None:
    found, questions = asked("abcdefgh", {"h"}, first)
    assert found == "h"
    assert "abcdefgh" not in questions
