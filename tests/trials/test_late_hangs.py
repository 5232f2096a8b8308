"""A hang that comes later than the first training steps: the first start is watched to its end, and
once the hang is known a start has passed when it is past the step of that.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hangbisect.base.verdict_facts import HangPlace, Outcome, Ranks, Setting, Verdict
from hangbisect.search.trial_results import describe_ending, hang_place_of, judge_trial
from hangbisect.trials.isolation_plan import IsolationPlan
from hangbisect.trials.isolation_request import IsolationRequest, make_job
from hangbisect.trials.trial import Question, choose_watch_options

from .simulated_job import VERDICT, Job, hangs_unless, plan

COMMAND = ("torchrun", "--nproc_per_node=2", "train.py")
WORKERS = {"num_workers": ("0",)}
LATE = HangPlace("script", stacks=((("train.py", "save"),),), trained=35)


def a_users_own(**changes: object) -> IsolationPlan:
    return plan(command=COMMAND, ours=False, **changes)


def options(question: Question, folder: Path, ours: bool = False) -> dict[str, str]:
    return choose_watch_options(question, folder, ours)


def test_the_first_start_is_watched_to_its_end(tmp_path: Path) -> None:
    job = Job(hangs_unless(WORKERS))
    job.isolate(a_users_own())
    assert job.asked[0].question.to_end
    assert "past" not in options(job.asked[0].question, tmp_path)


def test_after_a_first_start_without_a_hang_the_others_end_once_they_train(tmp_path: Path) -> None:
    job = Job(lambda setting, number: "pass")
    job.isolate(a_users_own())
    assert {ask.question.to_end for ask in job.asked[1:]} == {False}
    assert options(job.asked[1].question, tmp_path)["past"] == "steady"
    assert any("--keep-watching" in line for line in job.said), job.said


def test_by_request_every_start_is_watched_to_its_end() -> None:
    job = Job(lambda setting, number: "pass")
    job.isolate(a_users_own(to_end=True))
    assert all(ask.question.to_end for ask in job.asked)
    assert not any("--keep-watching" in line for line in job.said)


def test_what_is_taken_for_a_hang_that_comes_and_goes_has_no_first_start() -> None:
    job = Job(lambda setting, number: "pass")
    job.isolate(a_users_own(flaky=True))
    assert not any(ask.question.to_end for ask in job.asked)


def test_it_is_said_in_one_line_what_the_first_start_is_watched_for() -> None:
    job = Job(hangs_unless(WORKERS))
    job.isolate(a_users_own())
    first = [line for line in job.said if "watched to its end" in line]
    assert len(first) == 1
    assert job.said[0] == first[0]
    job = Job(hangs_unless(WORKERS))
    job.isolate(plan())  # a pipeline of ours comes to its end
    assert not any("watched to its end" in line for line in job.said)


def test_where_the_hang_came_late_a_start_ends_past_that_step(tmp_path: Path) -> None:
    found = options(Question(LATE, 5.0), tmp_path)
    assert found["past"] == "35"
    # Between two steps of a start-up a training loop has the same stack: no reason to end sooner.
    assert "known-hang" not in found


@pytest.mark.parametrize("place", [LATE, replace(LATE, crash="RuntimeError")])
def test_a_late_crash_as_well(place: HangPlace, tmp_path: Path) -> None:
    assert options(Question(place, None, bool(place.crash)), tmp_path)["past"] == "35"


def test_a_late_hang_whose_steps_nobody_counted_takes_a_start_to_its_end(tmp_path: Path) -> None:
    assert "past" not in options(Question(replace(LATE, trained=0)), tmp_path)


def test_a_hang_of_the_start_ends_a_start_once_it_trains_as_before(tmp_path: Path) -> None:
    place = replace(LATE, trained=None)
    found = options(Question(place, 5.0), tmp_path)
    assert found["past"] == "steady"
    assert json.loads((tmp_path / "known-hang.json").read_text())["checkpoint"] == "script"


def verdict(outcome: Outcome, trained: int | None) -> Verdict:
    return replace(VERDICT, outcome=outcome, ranks=Ranks(), checkpoint=None, trained=trained)


def test_where_a_hang_is_tells_after_how_many_steps_it_came() -> None:
    assert hang_place_of(verdict("hang", 35), ()).trained == 35
    assert hang_place_of(verdict("hang", None), ()).trained is None


@pytest.mark.parametrize(
    ("trained", "known", "result"),
    [
        (120, None, "pass"),  # it trains, and nothing hung for as long as anybody waits
        (None, None, "other"),  # it never came past its first training steps
        (120, LATE, "pass"),
        (20, LATE, "other"),  # it is slow, and had not come to the place in question
        (35, LATE, "other"),  # it is there
        (120, replace(LATE, trained=0), "other"),  # nobody knows where that is
        (120, replace(LATE, trained=None), "pass"),
    ],
)
def test_a_start_that_trains_until_its_limit_has_passed(
    trained: int | None, known: HangPlace | None, result: str
) -> None:
    assert judge_trial(verdict("slow", trained), None, known) == result


def test_such_a_start_is_said_to_have_trained_until_its_limit() -> None:
    assert describe_ending(verdict("slow", 120), "") == "trained until --limit"
    assert describe_ending(verdict("slow", None), "") == "slow"


def test_it_is_an_option_of_isolate() -> None:
    asked = IsolationRequest(command=COMMAND, keep_watching=True)
    assert make_job(asked).plan.to_end
    assert not make_job(IsolationRequest(command=COMMAND)).plan.to_end


def test_a_late_hang_is_isolated_as_any_other() -> None:
    def behaves(setting: Setting, number: int) -> str:
        return "pass" if setting.get("num_workers") == "0" else "hang"

    job = Job(behaves)  # type: ignore[arg-type]  # its words are those of a result
    job.verdict = replace(VERDICT, trained=35)
    isolation = job.isolate(a_users_own())
    assert [change.toggle for change in isolation.changes] == ["num_workers"]
