"""What is right of an answer, and the shares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.rank_facts import SlowStep
from hangbisect.base.verdict_facts import (
    Candidate,
    Cause,
    CheckpointPlace,
    Edge,
    Ranks,
    Seconds,
    Verdict,
    Wait,
)
from hangbisect.zoo.case import Case, Truth
from hangbisect.zoo.comparison import (
    ComparedAnswer,
    compare_verdict,
    format_shares,
    format_shares_of_ways,
)

TRUTH = Truth(
    outcome="hang",
    culprit=(1,),
    waiting=(0,),
    checkpoint="wandb_logger",
    component=("wandb",),
    waits_for=("process", "socket"),
    detail="wandb-core",
    cause=("service-silent",),
)


def case(truth: Truth = TRUTH) -> Case:
    return Case(id="T1", title="made up", cluster="C3", reports=(), truth=truth)


SAID = Verdict(
    outcome="hang",
    pipeline="startup",
    command=(),
    attempt=0,
    world_size=2,
    checkpoint=CheckpointPlace(9, "wandb_logger", ""),
    ranks=Ranks(culprit=(1,), stuck=(1,), waiting=(0,)),
    component="wandb",
    call="wandb.init",
    waits_for=Wait("process", "", 7, "wandb-core"),
    cause=Cause("service-silent", "", "", "fits"),
    candidates=(Candidate((1,), "wandb", "fits"),),
    seconds=Seconds(30.0, to_verdict=4.5),
)


def verdict(**changed: Any) -> Verdict:
    return replace(SAID, **changed)


def test_an_answer_that_is_right_in_all_is_good() -> None:
    answer = compare_verdict(case(), verdict(), 31.0)
    assert answer.good
    assert (answer.component, answer.cause) == ("right", "right")
    assert (answer.level, answer.to_verdict, answer.seconds) == ("fits", 4.5, 31.0)


def test_what_stands_still_without_a_proof_is_the_hang_that_it_is_of() -> None:
    assert compare_verdict(case(), verdict(outcome="silent")).located


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"outcome": "crash"}, "outcome crash"),
        ({"ranks": Ranks((0, 1))}, "culprit 0-1"),
        ({"ranks": Ranks()}, "culprit none"),
        ({"checkpoint": CheckpointPlace(5, "trainer", "")}, "checkpoint trainer"),
        ({"checkpoint": None}, "checkpoint None"),
        ({"waits_for": Wait("sleep", "")}, "waits for sleep"),
        ({"waits_for": None}, "waits for nothing"),
        ({"waits_for": Wait("socket", "a:1")}, "detail 'a:1'"),
    ],
)
def test_what_is_wrong_is_named(changed: dict[str, Any], wrong: str) -> None:
    answer = compare_verdict(case(), verdict(**changed))
    assert answer.wrong == (wrong,)
    assert not answer.good


def test_no_verdict_is_wrong() -> None:
    answer = compare_verdict(case(), None)
    assert not answer.located


def test_a_waiting_rank_that_is_accused_is_counted() -> None:
    assert compare_verdict(case(), verdict(ranks=Ranks((0, 1)))).blamed == (0,)


def test_a_cause_that_is_not_known_is_not_wrong() -> None:
    answer = compare_verdict(case(), verdict(cause=None))
    assert answer.cause == "unknown"
    assert answer.good


def test_a_wrong_cause_is_wrong() -> None:
    answer = compare_verdict(case(), verdict(cause=Cause("other", "", "", "fits")))
    assert answer.cause == "wrong"
    assert not answer.good
    assert "wrong of those that fit 1 of 1" in format_shares([answer])


def test_unknown_can_be_the_right_cause() -> None:
    truth = replace(TRUTH, cause=("unknown",))
    assert compare_verdict(case(truth), verdict(cause=None)).cause == "right"
    assert compare_verdict(case(truth), verdict()).cause == "wrong"


def test_of_a_crash_some_of_the_ranks_may_be_named() -> None:
    truth = Truth(outcome="crash", culprit=(0, 1))
    assert compare_verdict(case(truth), verdict(outcome="crash")).good
    assert not compare_verdict(case(truth), verdict(outcome="crash", ranks=Ranks())).good


def test_a_slow_step_must_be_listed() -> None:
    truth = Truth(outcome="ok", slow="model")
    step = SlowStep(7, "model", None, (0,), 70.0, 60.0, "")
    assert compare_verdict(case(truth), verdict(outcome="ok", slow_steps=(step,))).good
    assert not compare_verdict(case(truth), verdict(outcome="ok")).good


def test_the_shares_of_what_was_run() -> None:
    answers = [
        compare_verdict(case(), verdict()),
        compare_verdict(case(), verdict(ranks=Ranks((0,)), candidates=(), cause=None)),
        compare_verdict(case(Truth(outcome="ok")), verdict()),
        compare_verdict(case(Truth(outcome="ok")), verdict(outcome="ok")),
        compare_verdict(case(Truth(outcome="crash", culprit=(1,))), verdict(outcome="crash")),
        compare_verdict(case(Truth(outcome="crash", culprit=(0,))), verdict(outcome="crash")),
        ComparedAnswer("T2", "", "hang", skipped="needs root"),
    ]
    assert format_shares(answers) == (
        "located 1 of 2 (50 %), crashes 1 of 2 (50 %), cause 1 of 2 (50 %), "
        "explained 0 of 0, wrong of those called seen 0, wrong of those that fit 0 of 1, "
        "waiting ranks blamed 1, "
        "controls: 1 false hangs of 2"
    )


def test_there_are_shares_of_nothing() -> None:
    assert format_shares([]).startswith("located 0 of 0, ")


# A verdict that locates a hang may still name a wrong call, draw a wrong chain, or explain nothing.
TOLD = replace(
    TRUTH,
    call=r"^wandb\.init$",
    chain=(r"rank 0 -> rank 1", r"rank 1 -> process \d+"),
    explained_by=("127.0.0.1:8080", "no answer"),
)
EXPLAINS = verdict(
    chain=(Edge("rank 0", "rank 1", "rank", ""), Edge("rank 1", "process 7", "process", "")),
    cause=Cause(
        "service-silent", "", "It asks 127.0.0.1:8080.", "fits", matched=("no answer for 9 s",)
    ),
)


def test_call_chain_and_explanation_are_compared_where_the_case_gives_them() -> None:
    answer = compare_verdict(case(TOLD), EXPLAINS)
    assert answer.good
    assert answer.explained == "right"
    assert compare_verdict(case(), verdict(call="os.read", chain=())).explained == ""


@pytest.mark.parametrize(
    ("changed", "untold"),
    [
        ({"call": "os.read"}, "call os.read"),
        ({"call": None}, "call None"),
        ({"chain": EXPLAINS.chain[:1]}, r"chain without rank 1 -> process \d+"),
        ({"cause": Cause("service-silent", "", "no answer", "fits")}, "not said 127.0.0.1:8080"),
    ],
)
def test_what_is_not_told_is_named_and_is_wrong(changed: dict[str, Any], untold: str) -> None:
    answer = compare_verdict(case(TOLD), replace(EXPLAINS, **changed))
    assert answer.untold == (untold,)
    assert answer.explained == "wrong"
    assert answer.located
    assert not answer.good


def test_the_explanation_of_a_wrong_or_unknown_cause_is_not_asked_for_again() -> None:
    answer = compare_verdict(case(TOLD), replace(EXPLAINS, cause=None))
    assert answer.untold == ()
    assert answer.cause == "unknown"


def test_in_a_script_of_ones_own_there_are_no_steps_and_parts_of_a_pipeline() -> None:
    elsewhere = verdict(checkpoint=None, component="user")
    assert not compare_verdict(case(), elsewhere).good
    for under in ("run", "attach"):
        answer = compare_verdict(case(), elsewhere, under=under)
        assert answer.good
        assert (answer.under, answer.component) == (under, "")


def test_who_looks_in_the_middle_of_a_healthy_wait_may_find_that_it_stands_still() -> None:
    healthy = case(Truth(outcome="ok"))
    assert compare_verdict(healthy, verdict(outcome="silent"), under="attach").good
    assert not compare_verdict(healthy, verdict(outcome="hang"), under="attach").good
    assert compare_verdict(healthy, None, under="attach").good  # it has ended meanwhile
    assert not compare_verdict(healthy, None, under="run").good
    assert not compare_verdict(healthy, verdict(outcome="silent"), under="run").good


# ---- the same case in two ways -------------------------------------------------------------------


def _both(changed: dict[str, Any], ways: tuple[Any, Any] = ("run", "attach")) -> str:
    one = compare_verdict(case(), verdict(), under=ways[0])
    other = compare_verdict(case(), verdict(**changed), under=ways[1])
    return format_shares_of_ways([one, other]).splitlines()[-1]


def test_the_same_answer_in_both_ways_is_counted() -> None:
    assert _both({}) == "same answer in both ways: 1 of 1 (100 %)"
    assert _both({"outcome": "silent", "call": "wandb.finish"}).endswith("1 of 1 (100 %)")
    said = _both({"ranks": Ranks((0,))})
    assert said == "same answer in both ways: 0 of 1 (0 %), not T1 (culprit 1 and 0)"
    other = Cause("self-deadlock", "", "", "fits")
    said = _both({"cause": other, "ranks": Ranks()})
    assert said.endswith("not T1 (culprit 1 and none, cause service-silent and self-deadlock)")


def test_where_one_of_them_gave_no_verdict_it_is_another_answer() -> None:
    one = compare_verdict(case(), verdict(), under="run")
    none = compare_verdict(case(), None, under="attach")
    said = format_shares_of_ways([one, none]).splitlines()[-1]
    assert said == "same answer in both ways: 0 of 1 (0 %), not T1 (no verdict by attach)"


def test_controls_skipped_cases_and_the_pipeline_are_not_compared() -> None:
    well = case(replace(TRUTH, outcome="ok", culprit=(), slow=None))
    ways: tuple[Any, ...] = ("run", "attach")
    answers = [compare_verdict(well, verdict(outcome="ok"), under=way) for way in ways]
    skipped = [replace(compare_verdict(case(), None, under=way), skipped="x") for way in ways]
    for some in ([], skipped, answers):
        last = format_shares_of_ways([*answers, *some]).splitlines()[-1]
        assert last == "same answer in both ways: 0 of 0"
    assert "in both ways" not in _both({}, ("pipeline", "attach"))
