"""What a trial's verdict means for the question."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.verdict_facts import CheckpointPlace, HangPlace, Outcome, Ranks, Verdict
from hangbisect.search.trial_results import describe_ending, judge_trial

PLACE = HangPlace("wandb_logger", None, "wandb.init", "wandb")
OTHER = HangPlace("trainer", None, "socket.recv", "trainer")


def verdict(outcome: Outcome, **fields: Any) -> Verdict:
    return replace(Verdict(outcome, "startup", (), 0, 4, None, Ranks()), **fields)


def test_a_run_that_ends_well_passes() -> None:
    assert judge_trial(verdict("ok"), None, PLACE) == "pass"


def test_only_the_hang_in_question_is_a_hang() -> None:
    assert judge_trial(verdict("hang"), PLACE, PLACE) == "hang"
    assert judge_trial(verdict("hang"), PLACE, None) == "hang"
    assert judge_trial(verdict("hang"), OTHER, PLACE) == "other"


@pytest.mark.parametrize("outcome", ["crash", "slow", "interrupted"])
def test_whatever_else_happens_accuses_nobody(outcome: Outcome) -> None:
    assert judge_trial(verdict(outcome), None, PLACE) == "other"
    assert judge_trial(None, None, PLACE) == "other"


def test_how_a_run_ended_is_told_in_a_line() -> None:
    where = CheckpointPlace(12, "training", "", "wrap")
    hung = verdict("hang", checkpoint=where, call="all_reduce", ranks=Ranks((1, 3)))
    assert describe_ending(hung, "") == "hang at checkpoint 12 (wrap) in all_reduce, ranks 1,3"
    assert describe_ending(None, "no such launcher") == "not judged: no such launcher"
    assert describe_ending(verdict("ok"), "") == "to its end"
    past = verdict("ok", notes=("ended on purpose: every rank was past wandb_logger",))
    assert describe_ending(past, "") == "past wandb_logger"
    assert describe_ending(verdict("crash"), "out of memory") == "crash: out of memory"
    assert (
        describe_ending(verdict("crash"), "ValueError: no", with_outcome=False) == "ValueError: no"
    )
    told = "at checkpoint 12 (wrap) in all_reduce, ranks 1,3"
    assert describe_ending(hung, "", with_outcome=False) == told


def test_where_a_crash_is_in_question_it_takes_the_place_of_a_hang() -> None:
    crashed = HangPlace("training", "first_backward", component="fit", crash="RuntimeError")
    assert judge_trial(verdict("crash"), crashed, crashed) == "hang"
    assert judge_trial(verdict("crash"), crashed, None) == "hang"
    other = HangPlace("trainer", component="trainer", crash="RuntimeError")
    assert judge_trial(verdict("crash"), other, crashed) == "other"
    assert judge_trial(verdict("hang"), None, crashed) == "other"
    assert judge_trial(verdict("ok"), None, crashed) == "pass"
