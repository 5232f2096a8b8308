"""The search for hangs that come and go is seldom wrong, and says how sure it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain, cycle, repeat
from math import comb
from random import Random

import flaky_search
import pytest
from hangbisect.base.verdict_facts import Result, Setting
from hangbisect.search.flaky_search import (
    HANGS,
    clean_starts_needed,
    estimate_flaky_starts,
    search_flaky,
)
from hangbisect.search.trial_results import Choice, StartCounts

WANDB = Choice("wandb", ("rank0", "offline", "off"))
STRATEGY = Choice("strategy", ("ddp",))
HUB = Choice("hub", ("offline",))
ALL = (WANDB, STRATEGY, HUB)


class Job:
    """A job that hangs at a rate unless `avoided`; the dice are always the same."""

    def __init__(self, rate: float, avoided: Callable[[Setting], bool]) -> None:
        self.rate, self.avoided = rate, avoided
        self.started: list[Setting] = []
        self._random = Random(7)

    def __call__(self, setting: Setting, why: str) -> Result:
        assert why
        self.started.append(setting)
        return "hang" if self._random.random() < self.rate and not self.avoided(setting) else "pass"


@cache
def needed_after(starts: int, level: float) -> int:
    return clean_starts_needed(StartCounts(HANGS, starts), level)


def wrong_at(rate: float, level: float) -> float:
    """Return how often a change that does nothing has as many clean starts as are needed.

    Over all numbers of starts that the job may take to its last hang (negative binomial).
    """
    return sum(
        comb(starts - 1, HANGS - 1)
        * rate**HANGS
        * (1 - rate) ** (starts - HANGS + needed_after(starts, level))
        for starts in range(HANGS, int(40 / rate))
    )


@pytest.mark.parametrize("level", [0.025, 0.0125])
@pytest.mark.parametrize("rate", [0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95])
def test_a_claim_that_is_false_stands_no_more_often_than_its_level(
    rate: float, level: float
) -> None:
    assert wrong_at(rate, level) <= level


def test_of_500_jobs_at_most_one_in_twenty_is_accused_wrongly() -> None:
    jobs = [flaky_search.searched(seed, most=20) for seed in range(500)]
    assert sum(job.wrong for job in jobs) <= 25
    ended = Counter((job.kind == "none", job.found.outcome) for job in jobs)
    assert ended[True, "not avoided"] == sum(job.kind == "none" for job in jobs)
    assert ended[False, "found"] >= 0.95 * sum(job.kind != "none" for job in jobs)


def test_what_it_finds_it_says_with_its_p_value() -> None:
    job = Job(0.3, lambda setting: setting.get("wandb") in ("offline", "off"))
    found = search_flaky(ALL, job, likely=["wandb"])
    assert found.outcome == "found"
    assert found.change == {"wandb": "offline"}
    assert found.without.hangs == HANGS
    assert found.with_change.hangs == 0
    assert found.p_value is not None
    assert found.p_value <= 0.025
    assert len(found.tried) == len(job.started)


def test_the_claim_is_tested_with_new_starts_alone() -> None:
    found = search_flaky(ALL, Job(0.5, lambda setting: "hub" in setting), likely=["hub"])
    claimed = [one for one in found.tried if one.again]
    assert (
        len(claimed)
        == found.with_change.starts
        < len([one for one in found.tried if one.setting == found.change])
    )


def test_one_hang_with_everything_at_its_safest_ends_it() -> None:
    job = Job(0.9, lambda setting: False)
    found = search_flaky(ALL, job)
    assert found.outcome == "not avoided"
    assert found.tried[-1].result == "hang"
    assert sum(bool(setting) for setting in job.started) == 1


def test_a_setting_no_safer_than_one_that_hung_is_not_started() -> None:
    job = Job(1.0, lambda setting: {"wandb", "strategy"} <= set(setting))
    found = search_flaky(ALL, job)
    assert found.change == {"wandb": "rank0", "strategy": "ddp"}
    assert found.proof == "implied"
    hung = [one.setting for one in found.tried if one.result == "hang" and one.setting]
    assert len(hung) == len({frozenset(setting) for setting in hung})


def test_a_job_that_does_not_hang_in_59_starts_is_left_alone() -> None:
    found = search_flaky(ALL, lambda setting, why: "pass")
    assert found.outcome == "passes"
    assert found.without == StartCounts(0, 59)


def test_a_job_that_hung_once_and_never_again_is_given_up() -> None:
    results: Iterator[Result] = chain(["hang"], repeat("pass"))
    found = search_flaky(ALL, lambda setting, why: next(results))
    assert found.outcome == "passes"
    assert found.without == StartCounts(1, 4 * 59)


def test_a_job_that_only_crashes_ends_otherwise() -> None:
    found = search_flaky(ALL, lambda setting, why: "other")
    assert found.outcome == "ends otherwise"


def test_a_toggle_that_makes_it_crash_is_left_out() -> None:
    job = Job(0.6, lambda setting: "hub" in setting)
    found = search_flaky(ALL, lambda s, why: "other" if "strategy" in s else job(s, why))
    assert found.outcome == "found"
    assert found.harmful == ("strategy",)
    assert found.change == {"hub": "offline"}


def test_a_crash_now_and_then_counts_for_nothing() -> None:
    job, crashes = Job(0.5, lambda setting: "hub" in setting), cycle([False, False, True])
    found = search_flaky(ALL, lambda s, why: "other" if next(crashes) else job(s, why))
    assert found.outcome == "found"
    assert found.change == {"hub": "offline"}
    assert found.without.starts < sum(not one.setting for one in found.tried)


@pytest.mark.parametrize("limit", range(0, 60, 4))
def test_a_search_that_is_ended_says_how_far_it_came_and_goes_on_there(limit: int) -> None:
    avoided: Callable[[Setting], bool] = lambda setting: "hub" in setting  # noqa: E731  # two jobs need it
    whole = search_flaky(ALL, Job(0.4, avoided))
    part = search_flaky(ALL, Job(0.4, avoided), max_trials=limit)
    assert part.tried == whole.tried[:limit]
    assert part.outcome == ("stopped" if limit < len(whole.tried) else "found")
    if part.outcome == "stopped" and part.change:
        assert part.p_value is not None
    left: Iterator[Result] = iter([one.result for one in whole.tried[limit:]])
    recorded = [(one.setting, one.result) for one in part.tried]
    assert search_flaky(ALL, lambda s, why: next(left), recorded=recorded) == whole


def test_more_starts_are_expected_the_more_seldom_it_hangs() -> None:
    expected = [estimate_flaky_starts(12, rate) for rate in (0.9, 0.5, 0.2, 0.1, 0.05)]
    assert expected == sorted(expected)
