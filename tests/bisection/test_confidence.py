"""Intervals, p-values and numbers of starts are exact."""

from __future__ import annotations

from math import comb

import pytest
from hangbisect.search.trial_results import clean_starts, fisher, interval
from hypothesis import given
from hypothesis import strategies as st

COUNTS = st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def chance_of(hangs: range, starts: int, rate: float) -> float:
    return sum(comb(starts, k) * rate**k * (1 - rate) ** (starts - k) for k in hangs)


@pytest.mark.parametrize(
    ("hangs", "starts", "low", "high"),
    [
        # Clopper-Pearson at 95 %, as R's binom.test gives it.
        (0, 10, 0.0, 0.3085),
        (1, 10, 0.0025, 0.4450),
        (5, 50, 0.0333, 0.2181),
        (10, 10, 0.6915, 1.0),
        (0, 0, 0.0, 1.0),
    ],
)
def test_the_interval_is_that_of_clopper_and_pearson(
    hangs: int, starts: int, low: float, high: float
) -> None:
    assert interval(hangs, starts) == pytest.approx((low, high), abs=1e-4)


@given(COUNTS, st.floats(0.5, 0.99))
def test_at_its_ends_what_was_counted_is_as_unlikely_as_it_says(
    counts: tuple[int, int], confidence: float
) -> None:
    hangs, starts = counts
    low, high = interval(hangs, starts, confidence)
    assert 0 <= low <= hangs / starts <= high <= 1
    tail = pytest.approx((1 - confidence) / 2, abs=1e-6)
    assert hangs == 0 or chance_of(range(hangs, starts + 1), starts, low) == tail
    assert hangs == starts or chance_of(range(hangs + 1), starts, high) == tail


@pytest.mark.parametrize(
    ("counts", "p"),
    [
        ((0, 3, 3, 3), 1 / 20),
        ((0, 5, 5, 5), 1 / 252),
        ((3, 3, 3, 3), 1.0),
        ((1, 4, 3, 4), 17 / 70),  # Fisher's lady tasting tea
        ((0, 0, 3, 3), 1.0),
    ],
)
def test_fishers_test_counts_all_ways_to_have_so_few(
    counts: tuple[int, int, int, int], p: float
) -> None:
    assert fisher(*counts) == pytest.approx(p)


@given(COUNTS, COUNTS)
def test_fewer_hangs_with_the_change_are_never_likelier(
    with_change: tuple[int, int], without: tuple[int, int]
) -> None:
    hangs, starts = with_change
    values = [fisher(k, starts, *without) for k in range(hangs + 1)]
    assert all(0 <= value <= 1 for value in values)
    # The more hang with the change, the more hang in all: only the same total can be compared.
    total = hangs + without[0]
    same_total = [
        fisher(k, starts, total - k, without[1])
        for k in range(starts + 1)
        if 0 <= total - k <= without[1]
    ]
    assert same_total == sorted(same_total)
    assert same_total[-1] == pytest.approx(1)


@pytest.mark.parametrize(
    ("rate", "confidence", "starts"),
    [(0.1, 0.95, 29), (0.05, 0.95, 59), (0.5, 0.75, 2), (1.0, 0.95, 1), (0.999, 0.95, 1)],
)
def test_so_many_clean_starts_rule_a_rate_out(rate: float, confidence: float, starts: int) -> None:
    assert clean_starts(rate, confidence) == starts


@given(st.floats(0.001, 0.99), st.floats(0.5, 0.999))
def test_one_clean_start_less_would_not_do(rate: float, confidence: float) -> None:
    starts = clean_starts(rate, confidence)
    assert (1 - rate) ** starts <= (1 - confidence) * 1.0001
    assert starts == 1 or (1 - rate) ** (starts - 1) > (1 - confidence) * 0.9999


@pytest.mark.parametrize("counts", [(-1, 3), (4, 3), (1, -1)])
def test_counts_that_cannot_be_are_an_error(counts: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="starts"):
        interval(*counts)
    with pytest.raises(ValueError, match="starts"):
        fisher(0, 1, *counts)


@pytest.mark.parametrize(("rate", "confidence"), [(0.0, 0.95), (1.1, 0.95), (0.1, 1.0), (0.1, 0.0)])
def test_a_rate_or_confidence_that_cannot_be_is_an_error(rate: float, confidence: float) -> None:
    with pytest.raises(ValueError, match="not between 0 and 1"):
        clean_starts(rate, confidence)
