"""A case in a larger world: who is at fault is put elsewhere, and the truth follows."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hangbisect.zoo import case_files
from hangbisect.zoo.case import ROLES, Case, Truth, place_in_world
from hangbisect.zoo.in_rank import rank_number

TWO = Case(
    id="T1",
    title="made up",
    cluster="C1",
    reports=(),
    truth=Truth(outcome="hang", culprit=(1,), waiting=(0,)),
    culprit_goes="anywhere",
)


def number(rank: int) -> int:
    return rank_number(SimpleNamespace(context=SimpleNamespace(place=SimpleNamespace(rank=rank))))


def test_the_culprit_is_put_in_the_middle_and_all_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    placed = place_in_world(TWO, 5, 2)
    assert (placed.ranks, placed.truth.culprit) == (5, (2,))
    assert placed.truth.waiting == (0, 1, 3, 4)
    assert "rank 2 of 5" in placed.title
    monkeypatch.setenv(ROLES, placed.environment[ROLES])
    assert [number(rank) for rank in range(5)] == [0, 0, 1, 0, 0]


def test_without_another_world_a_rank_is_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ROLES, raising=False)
    assert number(3) == 3


def test_where_nobody_only_waits_nobody_does_in_a_larger_world() -> None:
    placed = place_in_world(replace(TWO, truth=Truth("hang", culprit=(1,))), 4, 2)
    assert placed.truth.waiting == ()


def test_where_all_are_at_fault_all_of_a_larger_world_are() -> None:
    all_of_them = replace(TWO, truth=Truth("hang", culprit=(0, 1)), culprit_goes="everywhere")
    assert place_in_world(all_of_them, 3).truth.culprit == (0, 1, 2)


@pytest.mark.parametrize(
    ("case", "ranks", "culprit"),
    [
        (replace(TWO, culprit_goes=""), 4, 1),
        (TWO, 4, 4),
        (TWO, 4, -1),
        (replace(TWO, truth=Truth("hang", culprit=(0,)), culprit_goes="first"), 4, 2),
        (TWO, 1, 0),
    ],
)
def test_what_cannot_be_placed_is_refused(case: Case, ranks: int, culprit: int) -> None:
    with pytest.raises(ValueError, match="T1"):
        place_in_world(case, ranks, culprit)


def test_forty_cases_at_least_have_a_world_of_more_than_two_ranks() -> None:
    """Of two ranks a guess is right half of the time."""
    cases = [kept.case for kept in case_files.load_all_cases()]
    movable = [case for case in cases if case.culprit_goes]
    assert len(movable) >= 40
    in_the_middle = [case for case in movable if case.culprit_goes == "anywhere"]
    assert len(in_the_middle) >= 30
    for case in in_the_middle:
        assert place_in_world(case, 6, 3).truth.culprit == (3,)


def test_several_right_causes_are_explained_by_the_case() -> None:
    """One right cause a case; where there are two its text says why both are."""
    for kept in case_files.load_all_cases():
        if len(kept.case.truth.cause) > 1:
            assert "Both causes are right" in kept.story, kept.case.id
        assert "unknown" not in kept.case.truth.cause, kept.case.id


def test_twenty_cases_say_which_call_and_what_an_explanation_must_hold() -> None:
    truths = [kept.case.truth for kept in case_files.load_all_cases()]
    assert sum(bool(truth.call) for truth in truths) >= 20
    assert sum(bool(truth.explained_by) for truth in truths) >= 20
    assert sum(bool(truth.chain) for truth in truths) >= 20
