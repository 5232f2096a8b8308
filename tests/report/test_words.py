"""Ranks, times and bytes in words."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hangbisect.base.words import (
    GIB,
    MIB,
    cut_line,
    format_bytes,
    format_duration,
    format_ranges,
    format_ranks,
    format_rate,
    format_seconds,
    join_lines,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([], ""), ([3], "3"), ([0, 1], "0-1"), ([9, 0, 1, 2], "0-2,9"), ([1, 1, 3], "1,3")],
)
def test_ranks_are_written_as_ranges(ranks: list[int], text: str) -> None:
    assert format_ranges(ranks) == text


@given(st.sets(st.integers(0, 500)))
def test_ranges_lose_no_rank(ranks: set[int]) -> None:
    back: set[int] = set()
    for part in filter(None, format_ranges(ranks).split(",")):
        first, _, last = part.partition("-")
        back |= set(range(int(first), int(last or first) + 1))
    assert back == ranks


def test_one_rank_is_no_plural() -> None:
    assert [format_ranks(ranks) for ranks in ([3], [3, 4], [])] == ["rank 3", "ranks 3-4", ""]


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        (range(0, 1024, 2), "ranks 0-1022 step 2"),
        ([0, 1, *range(3, 40, 2)], "ranks 0-1,3,5,7,9,11,13,15,... and 12 more"),
    ],
)
def test_of_many_runs_the_first_are_written(ranks: Iterable[int], text: str) -> None:
    assert format_ranks(ranks) == text


def test_times_have_the_unit_a_person_would_use() -> None:
    assert [format_seconds(s) for s in (7.94, 91.2, 600, 9000)] == [
        "7.9 s",
        "91 s",
        "10 min",
        "2.5 h",
    ]


def test_what_a_pipeline_measured_is_told_in_seconds() -> None:
    assert [format_duration(s) for s in (0.0151, 12.5, 45.2)] == [
        "0.015 s",
        "12.5 s",
        "45.2 s, 0.8 min",
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (5000, "4.88 KiB"),
        (64 * MIB, "64 MiB"),
        (MIB - 1, "1 MiB"),
        (10 * MIB - 1, "10 MiB"),
        (3 * GIB // 2, "1.5 GiB"),
        (100 * GIB, "100 GiB"),
        (3 << 40, "3 TiB"),
    ],
)
def test_bytes_go_in_steps_of_1024(number: int, text: str) -> None:
    assert format_bytes(number) == text


@pytest.mark.parametrize(
    ("number", "seconds", "text"),
    [
        (41_000_000, 1.0, "39 MiB/s"),
        (15, 5.0, "3 bytes/s"),
        (5, 5.0, "1 byte/s"),
        (1, 5.0, "1 byte in 5 s"),
        (0, 5.0, "0 bytes in 5 s"),
        (3, 0.0, "2.93 KiB/s"),
    ],
)
def test_a_rate_is_never_rounded_to_nothing(number: int, seconds: float, text: str) -> None:
    assert format_rate(number, seconds) == text


@given(st.text())
def test_one_line_is_one_line(text: str) -> None:
    assert len(join_lines(text).splitlines()) <= 1
    assert "\x1b" not in join_lines(text)


def test_lines_are_cut_to_a_terminal_and_never_to_a_pipe() -> None:
    assert cut_line("x" * 100, 10) == "xxxxxxx..."
    assert cut_line("x" * 100, None) == "x" * 100
