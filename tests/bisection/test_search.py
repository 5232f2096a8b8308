"""The search finds the smallest change, in few trials, and accuses nobody of a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, combinations, repeat
from math import log2
from random import Random

import pytest
from hangbisect.base.verdict_facts import Result, Setting
from hangbisect.search.search import search
from hangbisect.search.trial_results import Choice, ProbeResult, SearchResult, StartCounts, Test
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_hangs import Hang, any_hang, crashing_hang, monotone_hang, smaller_that_passes

from ..examples import examples

SEEDS = st.integers(0, 2**32)
GUESSES = st.lists(st.integers(0, 40), max_size=8)
WANDB = Choice("wandb", ("rank0", "offline", "off"))
STRATEGY = Choice("strategy", ("ddp",))
HUB = Choice("hub", ("rank0-first", "offline"))
WORKERS = Choice("num_workers", ("0",))
ALL = (STRATEGY, HUB, WORKERS, WANDB)
RANKS = Choice("world_size", ("2", "1"))


class Job:
    """A job that hangs unless `avoided`, and crashes where `crashes` says so."""

    def __init__(
        self,
        avoided: Callable[[Setting], bool],
        crashes: Callable[[Setting], bool] = lambda setting: False,
    ) -> None:
        self.avoided, self.crashes = avoided, crashes
        self.started: list[tuple[Setting, Result]] = []

    def __call__(self, setting: Setting, why: str) -> Result:
        assert why
        result: Result = "pass" if self.avoided(setting) else "hang"
        if self.crashes(setting):
            result = "other"
        self.started.append((setting, result))
        return result


def trials(found: SearchResult) -> int:
    return sum(not one.again for one in found.tried)


# ---- simulated hangs ---------------------------------------------------------------------------


def searched(hang: Hang, guesses: Sequence[int] = ()) -> SearchResult:
    likely = [hang.choices[guess % len(hang.choices)].name for guess in guesses]
    return search(hang.choices, lambda setting, _: hang.result(setting), likely=likely, confirm=0)


@settings(max_examples=examples(400))
@given(seed=SEEDS, guesses=GUESSES)
def test_where_no_safer_value_brings_it_about_few_trials_find_the_smallest_change(
    seed: int, guesses: list[int]
) -> None:
    hang = monotone_hang(Random(seed))
    found = searched(hang, guesses)
    assert found.outcome == "found"
    assert hang.result(found.change) == "pass"
    assert smaller_that_passes(hang, found.change) is None
    size, toggles = len(found.change), len(hang.choices)
    assert trials(found) <= 2 * size * log2(toggles) + 2 * size + 4


@settings(max_examples=examples(400))
@given(seed=SEEDS, guesses=GUESSES)
def test_where_settings_crash_the_change_is_the_smallest_and_no_crash_accuses(
    seed: int, guesses: list[int]
) -> None:
    hang = crashing_hang(Random(seed))
    found = searched(hang, guesses)
    toggles = len(hang.choices)
    assert trials(found) <= toggles**2 + 3 * toggles
    if found.outcome != "found":
        assert found.outcome in ("harmed", "not avoided", "passes")
        return
    assert hang.result(found.change) == "pass"
    assert smaller_that_passes(hang, found.change) is None
    assert set(found.change) - hang.avoided.names() <= set(found.companions)
    assert not set(found.harmful) & set(found.change)


@settings(max_examples=examples(400))
@given(seed=SEEDS)
def test_where_safer_values_may_bring_it_about_no_part_of_the_change_passes(seed: int) -> None:
    hang = any_hang(Random(seed), most=12)
    found = searched(hang)
    assert found.outcome == "found"
    assert hang.result(found.change) == "pass"
    if found.proof == "every" or len(found.change) < 5:
        assert smaller_that_passes(hang, found.change) is None


@settings(max_examples=examples(200))
@given(seed=SEEDS)
def test_each_value_is_walked_back_to_the_least_that_passes(seed: int) -> None:
    hang = monotone_hang(Random(seed), most=12, levels=4)
    change = searched(hang).change
    assert hang.result(change) == "pass"
    assert smaller_that_passes(hang, change) is None
    for choice in hang.choices:
        if choice.name in change:
            for value in choice.values[: choice.values.index(change[choice.name])]:
                assert hang.result({**change, choice.name: value}) == "hang"


def parts(names: range) -> Iterator[frozenset[int]]:
    for size in range(len(names) + 1):
        yield from map(frozenset, combinations(names, size))


@settings(max_examples=examples(300))
@given(toggles=st.integers(1, 4), seed=SEEDS, result=st.sampled_from(["hang", "other", None]))
def test_of_results_without_any_rule_the_change_is_still_the_smallest(
    toggles: int, seed: int, result: Result | None
) -> None:
    random = Random(seed)
    any_result: tuple[Result, ...] = ("pass", result) if result else ("pass", "hang", "other")
    table = {part: random.choice(any_result) for part in parts(range(toggles))}
    table[frozenset()], table[frozenset(range(toggles))] = "hang", "pass"

    def outcome(setting: Setting, why: str = "") -> Result:
        return table[frozenset(int(name) for name in setting)]

    found = search([Choice(str(n), ("safe",)) for n in range(toggles)], outcome, confirm=0)
    assert found.outcome == "found"
    assert found.minimal
    assert outcome(found.change) == "pass"
    assert trials(found) <= toggles**2 + 3 * toggles
    smaller = [part for part in parts(range(toggles)) if part < set(map(int, found.change))]
    assert "pass" not in [table[part] for part in smaller] or found.proof == "implied"


# ---- before any search -------------------------------------------------------------------------


def test_a_job_that_passes_as_it_is_run_is_not_searched() -> None:
    found = search(ALL, Job(lambda setting: True))
    assert found.outcome == "passes"
    assert trials(found) == 1


def test_a_job_that_crashes_as_it_is_run_is_not_searched() -> None:
    found = search(ALL, Job(lambda setting: True, crashes=lambda setting: True))
    assert found.outcome == "ends otherwise"
    assert trials(found) == 1


def test_what_hangs_with_everything_at_its_safest_is_not_searched_but_described() -> None:
    job = Job(lambda setting: setting.get("world_size") == "1")
    found = search(ALL, job, probes=[RANKS])
    assert found.outcome == "not avoided"
    assert found.change == {}
    assert found.ruled_out == ("strategy", "hub", "num_workers", "wandb")
    assert found.described == (ProbeResult("world_size", "2", "1", "pass"),)
    assert trials(found) == 4


def test_without_toggles_nothing_avoids_it() -> None:
    assert search((), Job(lambda setting: False)).outcome == "not avoided"


@pytest.mark.parametrize("choices", [(WANDB, WANDB), (Choice("x", ()),)], ids=["twice", "empty"])
def test_toggles_that_cannot_be_searched_are_an_error(choices: tuple[Choice, ...]) -> None:
    with pytest.raises(ValueError, match="toggles"):
        search(choices, Job(lambda setting: True))


# ---- the usual case ----------------------------------------------------------------------------


def test_a_right_guess_needs_three_trials_and_its_walking_back() -> None:
    job = Job(lambda setting: setting.get("wandb") in ("offline", "off"))
    found = search(ALL, job, likely=["wandb"])
    assert found.change == {"wandb": "offline"}
    assert [setting for setting, _ in job.started[:5]] == [
        {},
        {"wandb": "off", "strategy": "ddp", "hub": "offline", "num_workers": "0"},
        {"wandb": "off"},
        {"wandb": "rank0"},
        {"wandb": "offline"},
    ]
    assert found.proof == "every"
    assert found.not_needed == ("strategy", "hub", "num_workers")
    assert (found.with_change, found.without) == (StartCounts(0, 3), StartCounts(3, 3))
    assert found.p_value == pytest.approx(0.05)


def test_two_that_only_together_avoid_it_are_both_found() -> None:
    job = Job(lambda setting: "wandb" in setting and setting.get("hub") == "offline")
    found = search(ALL, job, likely=["wandb"])
    assert found.change == {"wandb": "rank0", "hub": "offline"}
    assert set(found.ruled_out) <= {"strategy", "num_workers"}


def test_no_setting_is_started_twice_but_to_confirm() -> None:
    job = Job(lambda setting: {"wandb", "hub"} <= set(setting))
    found = search(ALL, job, confirm=0)
    keys = [frozenset(setting.items()) for setting, _ in job.started]
    assert len(keys) == len(set(keys)) == len(found.tried)


def test_settings_that_come_to_the_same_are_started_once() -> None:
    job = Job(lambda setting: setting.get("wandb") == "off")
    without_hub = lambda setting: frozenset((n, v) for n, v in setting.items() if n != "hub")  # noqa: E731  # it is its one use
    search((HUB, WANDB), job, same=without_hub, confirm=0)
    assert [setting for setting, _ in job.started] == [
        {},
        {"hub": "offline", "wandb": "off"},
        {"wandb": "rank0"},
        {"wandb": "offline"},
    ]


def test_an_unknown_name_among_the_likely_is_passed_over() -> None:
    found = search(ALL, Job(lambda setting: "hub" in setting), likely=["backend", "hub"])
    assert found.change == {"hub": "rank0-first"}


# ---- a toggle that does harm -------------------------------------------------------------------


def test_a_toggle_that_makes_it_crash_is_named_and_left_out() -> None:
    job = Job(lambda setting: "hub" in setting, crashes=lambda setting: "strategy" in setting)
    found = search(ALL, job)
    assert found.outcome == "found"
    assert found.harmful == ("strategy",)
    assert found.change == {"hub": "rank0-first"}


def test_of_two_that_crash_together_the_one_that_is_needed_is_kept() -> None:
    needed = Job(lambda setting: "hub" in setting, crashes=lambda s: {"hub", "wandb"} <= set(s))
    found = search(ALL, needed)
    assert found.harmful == ("wandb",)
    assert found.change == {"hub": "rank0-first"}


def test_where_nothing_passes_the_harmful_one_is_named_all_the_same() -> None:
    found = search(ALL, Job(lambda setting: False, crashes=lambda setting: "hub" in setting))
    assert found.outcome == "harmed"
    assert found.harmful == ("hub",)
    assert found.change == {}


def test_who_is_there_only_because_it_crashes_without_is_a_companion() -> None:
    job = Job(
        lambda setting: "hub" in setting,
        crashes=lambda setting: "hub" in setting and "wandb" not in setting,
    )
    found = search(ALL, job)
    assert found.change == {"hub": "rank0-first", "wandb": "rank0"}
    assert found.companions == ("wandb",)


# ---- its end -----------------------------------------------------------------------------------


@pytest.mark.parametrize("when", range(1, 6))
def test_a_pass_without_the_change_is_a_hang_that_comes_and_goes(when: int) -> None:
    unchanged: Iterator[Result] = chain(repeat("hang", when), ["pass"])
    test: Test = lambda setting, why: "pass" if setting else next(unchanged)  # noqa: E731  # typed
    found = search([HUB, STRATEGY], test, confirm=5)
    assert found.outcome == "comes and goes"
    assert found.without == StartCounts(when - 1, when)


def test_a_hang_with_the_change_is_a_hang_that_comes_and_goes() -> None:
    with_change: Iterator[Result] = iter(["pass", "pass", "hang"])
    found = search([STRATEGY], lambda setting, _: next(with_change) if setting else "hang")
    assert found.outcome == "comes and goes"
    assert found.with_change == StartCounts(1, 2)


def test_a_crash_when_it_is_confirmed_counts_for_nothing() -> None:
    with_change: Iterator[Result] = iter(["pass", "pass", "other", "pass"])
    found = search([STRATEGY], lambda setting, _: next(with_change) if setting else "hang")
    assert found.outcome == "found"
    assert found.with_change == StartCounts(0, 2, 1)
    assert found.p_value == pytest.approx(0.1)


@pytest.mark.parametrize("crashes", ["with it", "without it"])
def test_where_every_start_that_is_to_confirm_it_crashes_it_is_not_found(crashes: str) -> None:
    def test(setting: Setting, why: str) -> Result:
        if why.startswith("confirms") and (bool(setting) == (crashes == "with it")):
            return "other"
        return "pass" if setting else "hang"

    found = search([STRATEGY], test)
    assert found.outcome == "not confirmed"
    assert found.change == {"strategy": "ddp"}
    assert found.p_value is None
    counts = found.with_change if crashes == "with it" else found.without
    assert counts == StartCounts(0, 0, 3)


def test_without_starts_that_confirm_it_is_found_and_has_no_p_value() -> None:
    found = search([STRATEGY], Job(lambda setting: "strategy" in setting), confirm=0)
    assert (found.outcome, found.p_value) == ("found", None)


@pytest.mark.parametrize("more", range(4))
def test_what_was_found_stands_where_the_search_ends_among_the_probes(more: int) -> None:
    job = Job(lambda setting: "strategy" in setting or setting.get("world_size") == "1")
    backend = Choice("backend", ("gloo",))
    whole = search([STRATEGY], job, probes=[RANKS, backend], confirm=1)
    part = search([STRATEGY], job, probes=[RANKS, backend], confirm=1, max_trials=4 + more)
    assert len(whole.tried) == 7
    assert (part.outcome, part.change) == ("found", {"strategy": "ddp"})
    assert part.p_value == whole.p_value is not None
    assert part.described == whole.described[: {0: 0, 1: 0, 2: 1, 3: 2}[more]]


@settings(max_examples=examples(100))
@given(seed=SEEDS, limit=st.integers(0, 30))
def test_a_search_that_is_ended_goes_on_where_it_was(seed: int, limit: int) -> None:
    hang = crashing_hang(Random(seed), most=12)
    whole = search(hang.choices, lambda setting, _: hang.result(setting))
    part = search(hang.choices, lambda setting, _: hang.result(setting), max_trials=limit)
    assert part.tried == whole.tried[:limit]
    if part.outcome == "stopped" and part.change:
        assert hang.result(part.change) == "pass"
    started = []

    def test(setting: Setting, why: str) -> Result:
        started.append(setting)
        return hang.result(setting)

    recorded = [(one.setting, one.result) for one in part.tried]
    assert search(hang.choices, test, recorded=recorded) == whole
    assert len(started) == len(whole.tried) - len(part.tried)


def test_whoever_starts_the_job_may_end_the_search() -> None:
    answers: Iterator[Result | None] = iter(["hang", "pass", "pass", None])
    found = search(ALL, lambda setting, why: next(answers), likely=["wandb"])
    assert found.outcome == "stopped"
    assert found.change == {"wandb": "off"}
    assert found.proof == ""
    assert not found.minimal
