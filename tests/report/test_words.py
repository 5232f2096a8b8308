"""Ranks and times in words."""

from __future__ import annotations

import pytest
from hangbisect.report.words import cut, of_ranks, one_line, ranges, seconds
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([], ""), ([3], "3"), ([0, 1], "0-1"), ([9, 0, 1, 2], "0-2,9"), ([1, 1, 3], "1,3")],
)
def test_ranks_are_written_as_ranges(ranks: list[int], text: str) -> None:
    assert ranges(ranks) == text


@given(st.sets(st.integers(0, 500)))
def test_ranges_lose_no_rank(ranks: set[int]) -> None:
    back: set[int] = set()
    for part in filter(None, ranges(ranks).split(",")):
        first, _, last = part.partition("-")
        back |= set(range(int(first), int(last or first) + 1))
    assert back == ranks


def test_one_rank_is_no_plural() -> None:
    assert (of_ranks([3]), of_ranks([3, 4])) == ("rank 3", "ranks 3-4")


def test_times_have_the_unit_a_person_would_use() -> None:
    assert [seconds(s) for s in (7.94, 91.2, 600, 9000)] == ["7.9 s", "91 s", "10 min", "2.5 h"]


@given(st.text())
def test_one_line_is_one_line(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1
    assert "\x1b" not in one_line(text)


def test_lines_are_cut_to_a_terminal_and_never_to_a_pipe() -> None:
    assert cut("x" * 100, 10) == "xxxxxxx..."
    assert cut("x" * 100, None) == "x" * 100
