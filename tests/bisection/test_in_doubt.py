"""Where hangs come and go, a hang is certain and a pass is for now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, repeat

import pytest
from hangbisect.base.verdict_facts import Result
from hangbisect.search.flaky_search import (
    DOUBT,
    ProvisionalAnswers,
    clean_starts_needed,
    ends_otherwise,
)
from hangbisect.search.search import StartRecord
from hangbisect.search.trial_results import Ask, Choice, StartCounts, fisher, setting_key
from hypothesis import given
from hypothesis import strategies as st

WANDB = Choice("wandb", ("rank0", "offline", "off"))
HUB = Choice("hub", ("offline",))
AS_RUN = StartCounts(4, 80)
CLEAN = clean_starts_needed(AS_RUN, DOUBT)
BOTH = {"wandb": "off", "hub": "offline"}


def doubting(results: Iterable[Result]) -> tuple[ProvisionalAnswers, StartRecord]:
    """Return what answers, and the record: starts end with these results, then there are none."""
    coming = iter(results)
    record = StartRecord(lambda setting, why: next(coming, None), (), setting_key, None)
    return ProvisionalAnswers(record, (WANDB, HUB), AS_RUN), record


@given(st.integers(1, 8), st.integers(0, 200), st.floats(0.001, 0.5))
def test_as_many_clean_starts_as_are_needed_and_not_one_more(
    hangs: int, others: int, level: float
) -> None:
    without = StartCounts(hangs, hangs + others)
    clean = clean_starts_needed(without, level)
    assert fisher(0, clean, without.hangs, without.starts) <= level
    assert fisher(0, clean - 1, without.hangs, without.starts) > level


def test_one_hang_ends_a_setting_at_once_and_all_that_are_no_safer() -> None:
    in_doubt, record = doubting(["pass", "hang"])
    assert in_doubt.answer(Ask({"wandb": "offline"}, "")) == "hang"
    assert in_doubt.answer(Ask({"wandb": "rank0"}, "")) == "hang"
    assert in_doubt.answer(Ask({}, "")) == "hang"
    assert len(record.tried) == 2
    assert not in_doubt.hangs({"wandb": "off"})
    assert not in_doubt.hangs({"hub": "offline"})


def test_a_setting_passes_for_now_after_few_clean_starts() -> None:
    in_doubt, record = doubting(repeat("pass", CLEAN))
    assert in_doubt.answer(Ask(BOTH, "")) == "pass"
    assert in_doubt.answer(Ask(BOTH, "")) == "pass"
    assert len(record.tried) == CLEAN
    in_doubt.be_stricter()
    assert in_doubt.answer(Ask(BOTH, "")) is None  # it asks for more, and there are none


def test_each_hang_below_it_asks_for_more_clean_starts_of_a_setting() -> None:
    results: Iterator[Result] = chain(repeat("pass", CLEAN), ["hang"], repeat("pass", 2), ["hang"])
    in_doubt, record = doubting(results)
    assert in_doubt.answer(Ask(BOTH, "")) == "pass"
    assert in_doubt.answer(Ask({"hub": "offline"}, "")) == "hang"
    assert record.results(BOTH) == ["pass"] * (CLEAN + 2) + ["hang"]
    assert in_doubt.answer(Ask({"wandb": "offline"}, "")) == "hang"  # it is no safer than that
    assert len(record.tried) == CLEAN + 4


def test_the_best_so_far_has_the_most_clean_starts_and_never_hung() -> None:
    results: Iterator[Result] = chain(["pass", "pass", "hang"], repeat("pass", CLEAN))
    in_doubt, _ = doubting(results)
    assert in_doubt.best() == {}
    assert in_doubt.answer(Ask({"wandb": "rank0"}, "")) == "hang"
    assert in_doubt.best() == {}
    assert in_doubt.answer(Ask({"hub": "offline"}, "")) == "pass"
    assert in_doubt.best() == {"hub": "offline"}


@pytest.mark.parametrize(
    ("results", "otherwise"),
    [
        (["other", "other"], False),
        (["other", "other", "other"], True),
        (["pass", "other", "pass", "other", "pass", "other"], False),
        (["other"] * 4 + ["pass"] * 3, True),
    ],
)
def test_a_setting_ends_otherwise_if_most_of_its_starts_do(
    results: list[Result], otherwise: bool
) -> None:
    assert ends_otherwise(results) == otherwise
