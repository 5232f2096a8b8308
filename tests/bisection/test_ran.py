"""What a cell came to, the status of all, and how long the rest takes."""

from __future__ import annotations

from itertools import product

import pytest
from hangbisect.base.verdict_facts import Outcome, Ranks, Verdict
from hangbisect.search.cells import (
    JUDGED,
    CellOutcome,
    estimate_seconds_left,
    judge_cell,
    matrix_exit_status,
    why_unjudged,
)
from hypothesis import given
from hypothesis import strategies as st

SECONDS = st.floats(0, 1e4)


def verdict(outcome: Outcome) -> Verdict:
    return Verdict(outcome, "startup", (), 0, 2, None, Ranks())


@pytest.mark.parametrize("outcome", JUDGED)
def test_a_cell_that_was_judged_came_to_its_verdict_whatever_its_status(outcome: Outcome) -> None:
    ended = verdict(outcome)
    assert all(judge_cell(ended, status, False) == outcome for status in (0, 1, 3))


@pytest.mark.parametrize(
    ("outcome", "status", "came"),
    [
        (None, None, "killed"),
        ("ok", None, "killed"),
        ("interrupted", 130, "killed"),
        (None, 137, "killed"),
        (None, 127, "not started"),
        (None, 2, "not started"),
    ],
)
def test_a_cell_that_nobody_judged_was_killed_or_never_started(
    outcome: Outcome | None, status: int | None, came: str
) -> None:
    ended = verdict(outcome) if outcome else None
    assert judge_cell(ended, status, False) == came
    assert judge_cell(ended, status, True) == "interrupted"


def test_why_it_was_not_judged_names_the_signal_where_there_was_one() -> None:
    assert why_unjudged("killed", 137, "x") == "its launcher was ended from outside by signal 9"
    assert why_unjudged("killed", 130, "x") == "its launcher was ended from outside"
    assert why_unjudged("killed", None, "it was killed") == "it was killed"
    assert why_unjudged("not started", 127, "no such program") == "no such program"
    assert why_unjudged("interrupted", 130, "x") == ""


def test_the_worst_cell_gives_the_status() -> None:
    order: tuple[CellOutcome, ...] = (
        "ok",
        "slow",
        "not started",
        "killed",
        "crash",
        "hang",
        "interrupted",
    )
    status = {"ok": 0, "slow": 4, "not started": 5, "killed": 5, "crash": 5, "hang": 3}
    for better, worse in product(order, order):
        worst = order[max(order.index(better), order.index(worse))]
        assert matrix_exit_status([better, worse]) == {**status, "interrupted": 130}[worst]
    assert matrix_exit_status([]) == 0


def test_the_rest_takes_as_long_a_cell_as_those_before() -> None:
    assert estimate_seconds_left([], [3.0], 5, 1) is None
    assert estimate_seconds_left([10.0, 20.0], [], 4, 1) == 60.0
    assert estimate_seconds_left([10.0, 20.0], [5.0, 0.0], 4, 2) == (10 + 15 + 60) / 2
    assert estimate_seconds_left([10.0], [30.0], 0, 1) == 0.0
    assert (
        estimate_seconds_left([0.2], [59.8], 2, 1) == 60.0
    )  # one that goes on longer counts as well


@given(st.lists(SECONDS, min_size=1), st.lists(SECONDS), st.integers(0, 99), st.integers(1, 9))
def test_more_jobs_never_take_longer(
    ended: list[float], under_way: list[float], waiting: int, jobs: int
) -> None:
    one, more = (estimate_seconds_left(ended, under_way, waiting, n) for n in (jobs, jobs + 1))
    assert one is not None
    assert more is not None
    assert 0 <= more <= one + 1e-9
