"""When what stands still is only silent: a known time limit is asked first, also where there is no
deadline.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from hangbisect.base.identity import RankId
from hangbisect.base.verdict_facts import Ranks, Verdict
from hangbisect.diagnosis.verdict_skeleton import make_verdict_skeleton
from hangbisect.monitor.clocks import KnownHang, TimeLimits, find_deadlines
from hangbisect.monitor.job import Job
from hangbisect.monitor.judgement import is_only_silent, is_still_believed
from hangbisect.monitor.verdict_review import VerdictReview

from ..diagnosis.made_up import job as job_facts
from ..diagnosis.made_up import rank
from .made_up import at_step, say


def silent_job(
    phase: str = "steady", *, trial: bool = False, script: bool = False, **more: Any
) -> Any:
    """A job of two ranks in a phase of the fourth step, which stand still for 25 s of a --stall of
    20.
    """
    now = time.monotonic()
    members = at_step(4, now - 60.0)
    for one in (0, 1):
        say(members, one, {"t": "phase", "name": phase, "at": now - 50.0})
    for member in members:
        member.moved_at = now - 25.0
    limits = TimeLimits({}, known=more.pop("known", None))
    made = SimpleNamespace(
        members=members,
        limits=limits,
        runs_script=script,
        is_trial=trial,
        started=now - 100.0,
        settings={"limit": more.pop("limit", 0.0)},
        silent_until=more.pop("silent_until", 0.0),
        stands_for={},
        ends_it=False,
        verdict=None,
        limit_told=None,
    )
    made.find_members = set
    made.find_deadlines = lambda verdict: find_deadlines(members, {0, 1}, limits)
    made.trains = False
    own: Any = made
    made.has_no_deadline = lambda verdict: Job.has_no_deadline(own, verdict)
    return made


def hang(*culprits: RankId) -> Verdict:
    facts = [rank(0), rank(1)]
    return make_verdict_skeleton(
        job_facts("still", 2), facts, "hang", Ranks(culprit=culprits or (1,))
    )


def silent(
    made: Any, left: float, ended: Any = "still", proof: str = "", over: bool = False
) -> bool:
    return is_only_silent(made, hang(), ended, proof, over, time.monotonic() + left)


def test_without_a_deadline_stall_is_the_limit_where_no_other_is_known() -> None:
    assert not silent(silent_job(), 0.0)
    assert silent(silent_job("first_step"), 0.0)


@pytest.mark.parametrize("left", [3.0, 300.0])
def test_a_known_time_limit_that_still_runs_is_asked_first(left: float) -> None:
    assert silent(silent_job(), left)
    assert not silent(silent_job(), left, proof="a process is stopped")


def test_a_start_of_a_search_waits_for_a_limit_that_comes_soon() -> None:
    """It is made to be ended: a limit that is far away keeps no search waiting."""
    for script in (False, True):
        made = silent_job(trial=True, script=script)
        assert silent(made, 30.0)
        assert not silent(made, 0.0)
        assert not silent(made, 100.0)
        assert not silent(made, 30.0, ended="limit")


def test_where_the_search_knows_the_hang_no_limit_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KnownHang, "is_place_of", lambda *about: True)
    monkeypatch.setattr(KnownHang, "is_shown_by", lambda *about: True)
    known: Any = KnownHang(SimpleNamespace(), 5.0)  # type: ignore[arg-type]  # what is asked of it
    assert not silent(silent_job(trial=True, known=known), 30.0)


def test_a_limit_that_has_passed_once_and_moved_nothing_is_believed_no_more() -> None:
    """A loop that waits for 30 s again and again has no end."""
    made, now = silent_job(), time.monotonic()
    assert is_still_believed(made, {1})
    made.limit_told = (now - 10.0, now - 1.0)
    assert not is_still_believed(made, {1})
    made.limit_told = (now - 10.0, now + 5.0)
    assert is_still_believed(made, {1})
    made.limit_told = (now - 10.0, now - 1.0)
    made.members.by_rank[1].moved_at = now - 0.5
    assert is_still_believed(made, {1})


@pytest.mark.parametrize(("trial", "script"), [(False, False), (True, False), (True, True)])
def test_what_was_silent_for_a_limit_alone_is_judged_again_after_it(
    trial: bool, script: bool
) -> None:
    now = time.monotonic()
    made = silent_job(trial=trial, script=script, silent_until=now + 5.0)
    made.verdict = hang()
    review = VerdictReview(made, SimpleNamespace(), lambda: False)  # type: ignore[arg-type]  # what it asks of them
    assert review.find_limit(now) is None
    assert review.find_limit(now + 6.0) == "deadline"


def test_but_a_script_of_the_users_own_is_silent_for_as_long_as_it_stands() -> None:
    now = time.monotonic()
    made = silent_job(script=True, silent_until=now - 5.0)
    made.verdict = hang()
    review = VerdictReview(made, SimpleNamespace(), lambda: False)  # type: ignore[arg-type]  # what it asks of them
    assert review.find_limit(now) is None
