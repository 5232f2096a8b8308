"""Who else it may be."""

from __future__ import annotations

from hangbisect.diagnosis.verdict import judge_job

from .made_up import ALL_REDUCE, RECV, SLEEP, gone, held, job, look, rank

TWICE = (RECV, RECV)


def test_the_culprit_comes_first_and_those_that_wait_last() -> None:
    ranks = [rank(0, *TWICE, reached=11), rank(1, *TWICE, reached=8), held(2)]
    found = judge_job(job(world=3), ranks).candidates
    assert [one.ranks for one in found] == [(1,), (0,), (2,)]
    assert found[0].component == "wandb"
    assert [one.level for one in found] == ["fits", "guess", "guess"]


def test_who_was_looked_at_once_is_a_guess() -> None:
    sure = judge_job(job(), [rank(0, *TWICE), held(1)]).candidates
    unsure = judge_job(job(), [rank(0, RECV), held(1)]).candidates
    assert (sure[0].level, unsure[0].level) == ("fits", "guess")


def test_ranks_that_are_suspect_in_the_same_way_are_one_candidate() -> None:
    ranks = [rank(r, SLEEP if r == 4 else ALL_REDUCE, reached=11) for r in range(8)]
    assert [one.ranks for one in judge_job(job(world=8), ranks).candidates] == [
        (4,),
        (0, 1, 2, 3, 5, 6, 7),
    ]


def test_there_are_at_most_five() -> None:
    ranks = [rank(r, *TWICE, reached=r) for r in range(9)]
    assert len(judge_job(job(world=9), ranks).candidates) == 5


def test_after_a_crash_those_that_only_followed_are_unlikely() -> None:
    found = judge_job(job("crash"), [gone(0, -15), gone(1, 1, "ValueError: no")]).candidates
    assert [one.ranks for one in found] == [(1,), (0,)]
    assert found[1].level == "guess"


def test_nobody_is_a_candidate_where_nobody_is_accused() -> None:
    works = look("forward model.py:4", call="", state="R")
    assert judge_job(job("interrupted"), [rank(0, works), rank(1, works)]).candidates == ()
    done = [gone(r, 0, reached=12, finished=True) for r in range(2)]
    assert judge_job(job("done"), done).candidates == ()
