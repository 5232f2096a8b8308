"""The cause in a verdict: what is tried first, and what happens when a declaration is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hangbisect.base.rank_facts import Ended
from hangbisect.base.verdict_facts import Outcome
from hangbisect.diagnosis.causes import catalogue
from hangbisect.diagnosis.causes.known_cause import Found, KnownCause, LooksFor, Scene, need
from hangbisect.diagnosis.verdict import judge_job

from .made_up import RECV, gone, held, job, rank


def _always(scene: Scene) -> Found | None:
    """Always."""
    return Found(f"{len(scene.ranks)} ranks, {len(scene.graph.edges) if scene.graph else 0} edges")


def _raises(scene: Scene) -> Found | None:
    """Never."""
    raise KeyError("no such thing")


def known(name: str, looks_for: LooksFor = _always, **more: Any) -> KnownCause:
    return KnownCause(name, "a title", (need(looks_for, 0.99),), "Because.", ("do it",), **more)


Only = Callable[..., None]


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Only:
    """Make these the only causes that are known."""

    def known_are(*causes: KnownCause) -> None:
        monkeypatch.setattr(catalogue, "CAUSES", causes)

    return known_are


HANG = [rank(0, RECV), held(1)]


def test_what_avoids_the_cause_is_tried_before_what_is_safer_in_general(only: Only) -> None:
    only(known("x", toggles=(("num_workers", "0"), ("hub", "offline"))))
    command = ("x", "--num-workers", "4", "--model", "gpt2")
    verdict = judge_job(job(command=command), HANG)
    assert verdict.cause is not None
    assert (verdict.cause.id, verdict.cause.avoid) == ("x", ("do it",))
    assert verdict.cause.matched[0].startswith("2 ranks, ")
    assert [(one.toggle, one.value) for one in verdict.try_][:2] == [
        ("num_workers", "0"),
        ("hub", "offline"),
    ]
    assert verdict.try_[0].command == "x --model gpt2 --num-workers 0"
    assert {one.toggle for one in verdict.try_[2:]} == {"wandb"}


def test_a_declaration_that_raises_costs_no_verdict(only: Only) -> None:
    only(known("wrong", _raises), known("right"))
    verdict = judge_job(job(notes=("the launcher is gone",)), HANG)
    assert verdict.cause is not None
    assert verdict.cause.id == "right"
    assert verdict.notes == (
        "the launcher is gone",
        "the cause wrong could not be looked for (KeyError: 'no such thing')",
    )


@pytest.mark.parametrize(
    ("ended", "outcome"),
    [("late", "hang"), ("limit", "slow"), ("crash", "crash"), ("interrupted", "interrupted")],
)
def test_every_outcome_but_ok_can_have_a_cause(ended: Ended, outcome: Outcome, only: Only) -> None:
    only(known("x", outcomes=(outcome,)))
    ranks = [gone(0, 1, "ValueError: no"), held(1)] if ended == "crash" else HANG
    verdict = judge_job(job(ended), ranks)
    assert verdict.cause is not None
    assert verdict.outcome == outcome


def test_a_job_that_ended_well_has_no_cause(only: Only) -> None:
    only(known("x", outcomes=("ok", "hang")))
    ranks = [gone(r, 0, reached=12, finished=True) for r in range(2)]
    assert judge_job(job("done"), ranks).cause is None
