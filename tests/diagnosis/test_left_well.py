"""A rank that has ended well, and another that crashes after it: whose fault that is, and what
gloo's own words tell of it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.rank_facts import RankFacts
from hangbisect.diagnosis.blame import find_first_to_fail
from hangbisect.diagnosis.verdict import judge_job

from .logs import Call, rank
from .made_up import gone, job

LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:2671"
MISMATCH = (
    "RuntimeError: [gloo/transport/tcp/pair.cc:460] Received data size doesn't match expected "
    "size. Is there a distributed collective mismatch in your code?"
)
STEP, SAVE = Call("all_reduce", "train.py:33"), Call("barrier", "train.py:19")


def ended(number: int, program: list[Call], done: int, status: int, error: str = "") -> RankFacts:
    """A rank that had done so many calls of its program when it ended."""
    told = rank(number, program, done)
    at = 100.0 + done
    return gone(number, status, error, left_at=at, collectives=told.collectives)


def test_who_crashes_in_a_collective_that_the_one_that_ended_well_never_calls_is_to_blame() -> None:
    ranks = [ended(0, [STEP, STEP, SAVE], 2, 1, LOST), ended(1, [STEP, STEP], 2, 0)]
    assert find_first_to_fail(ranks) == (0,)
    verdict = judge_job(job("crash", pipeline="", command=("torchrun", "train.py")), ranks)
    assert verdict.ranks.culprit == (0,)


def test_who_ended_in_the_midst_of_what_the_other_still_does_left_early() -> None:
    ranks = [ended(0, [STEP, STEP, STEP], 2, 1, LOST), ended(1, [STEP, STEP], 2, 0)]
    assert find_first_to_fail(ranks) == (1,)


def test_without_logs_the_one_that_left_is_the_peer_that_was_missing() -> None:
    assert find_first_to_fail([gone(0, 1, LOST), gone(1, 0)]) == (1,)


def test_who_crashes_by_itself_is_to_blame_whoever_has_ended_well() -> None:
    assert find_first_to_fail([gone(0, 1, "ValueError: no"), gone(1, 0)]) == (0,)


@pytest.mark.parametrize("where", ["error", "output"])
def test_what_gloo_says_of_a_mismatch_is_one(where: str) -> None:
    said = replace(gone(0, 1, MISMATCH if where == "error" else LOST), output=(MISMATCH,))
    verdict = judge_job(
        job("crash", pipeline="", command=("torchrun", "train.py")), [said, gone(1, 1, LOST)]
    )
    assert verdict.cause is not None
    assert verdict.cause.id == "gloo-mismatch"
    assert any("Is there a distributed collective mismatch" in one for one in verdict.cause.matched)


def test_a_crash_of_which_it_says_nothing_is_none() -> None:
    verdict = judge_job(job("crash"), [gone(0, 1, "ValueError: no"), gone(1, 1, LOST)])
    assert verdict.cause is None or verdict.cause.id != "gloo-mismatch"
