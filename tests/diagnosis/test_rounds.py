"""Ranks that stand in the same place in different rounds of a loop of the job's own: one of them
has left a round out, or resumed at another one. The counters of their loops tell it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.process_facts import Look
from hangbisect.base.verdict_facts import Verdict
from hangbisect.diagnosis.verdict import judge_job

from .made_up import job, look
from .test_transfers import C10D, SERVER, still


def at(counters: dict[str, int], *frames: str, call: str = "clock_nanosleep") -> Look:
    """A rank in these frames, the second last of which is in rounds of a loop."""
    one = look(*frames, call=call)
    (thread,) = one.threads
    place = len(thread.frames) - 2
    made = list(thread.frames)
    made[place] = replace(made[place], counters=tuple(counters.items()))
    return replace(one, threads=(replace(thread, frames=tuple(made)),))


def polls(epoch: int, **more: int) -> Look:
    """In `while arrived < world: sleep` of an epoch."""
    return at({"epoch": epoch, **more}, "meet train.py:27", "train train.py:36", "main train.py:46")


def meets(step: int) -> Look:
    frames = (f"barrier {C10D}:5356", "train train.py:36", "main train.py:46")
    return at({"step": step}, *frames, call="futex")


def judged(*looks: Look) -> Verdict:
    about = job("late", len(looks), pipeline="", command=("python", "train.py"))
    return judge_job(about, [still(n, one) for n, one in enumerate(looks)])


@pytest.mark.parametrize("culprit", [0, 2, 3])
def test_who_looks_for_the_others_in_another_round_is_to_blame(culprit: int) -> None:
    verdict = judged(*[polls(4 if n == culprit else 3) for n in range(4)])
    assert verdict.ranks.culprit == (culprit,)
    assert verdict.ranks.waiting == tuple(n for n in range(4) if n != culprit)
    assert verdict.guessed
    assert verdict.cause is not None
    assert (verdict.cause.id, verdict.cause.level) == ("other-round", "guess")
    assert f"rank {culprit} is in the round of epoch = 4".capitalize() in verdict.cause.why


def test_a_barrier_that_all_are_in_meets_that_of_another_step() -> None:
    verdict = judged(meets(42), meets(41), meets(42))
    assert verdict.ranks.culprit == (1,)
    assert verdict.cause is not None
    assert verdict.cause.id == "other-round"
    assert "step = 41" in verdict.cause.why


def test_the_outer_loop_tells_more_than_the_inner_one() -> None:
    """After another epoch has begun, the number of a batch says nothing."""
    looks = [polls(2, batch=7), polls(3, batch=7), polls(2, batch=9), polls(2, batch=7)]
    assert judged(*looks).ranks.culprit == (1,)


def test_in_the_same_round_nobody_is_to_blame_for_it() -> None:
    assert judged(*[polls(3)] * 3).ranks.culprit == (0, 1, 2)


def test_of_two_ranks_and_of_two_halves_nobody_can_tell_whose_round_is_wrong() -> None:
    assert judged(polls(3), polls(4)).ranks.culprit == (0, 1)
    assert judged(polls(3), polls(3), polls(4), polls(4)).ranks.culprit == (0, 1, 2, 3)


def test_rounds_over_shares_of_the_data_differ_on_all_ranks() -> None:
    assert judged(polls(0), polls(10), polls(20), polls(30)).ranks.culprit == (0, 1, 2, 3)


def test_who_asks_a_server_is_to_blame_whatever_rounds_the_others_are_in() -> None:
    assert judged(polls(3), polls(4), polls(3), SERVER).ranks.culprit == (3,)


def test_ranks_in_different_places_are_not_compared() -> None:
    elsewhere = at({"epoch": 4}, "upload train.py:90", "train train.py:39", "main train.py:46")
    assert judged(polls(3), polls(3), polls(3), elsewhere).ranks.culprit != (0, 1, 2)
    assert judged(polls(3), polls(4), elsewhere, elsewhere).ranks.culprit != (1,)


def at_handles(step: int) -> Look:
    """A rank in request.wait() of a line of its own: of a send, a receive, or a collective."""
    one = at({"step": step}, "exchange halo.py:23", "train train.py:36", "main train.py:46")
    (thread,), (task,) = one.threads, one.kernel
    assert task.syscall is not None
    inner = replace(thread.frames[0], calls=("request.wait",))
    asleep = replace(task, syscall=replace(task.syscall, name="futex"))
    gloo = replace(asleep, comm="pt_gloo_runloop")
    threads = (replace(thread, frames=(inner, *thread.frames[1:])),)
    return replace(one, threads=threads, kernel=(asleep, gloo))


def test_at_handles_a_rank_may_be_a_round_ahead_of_the_others() -> None:
    """It has what its neighbour sent, and the others have not: nothing accuses it."""
    verdict = judged(at_handles(1), at_handles(0), at_handles(0), at_handles(0))
    assert verdict.ranks.culprit != (0,)
    assert verdict.cause is None or verdict.cause.id != "other-round"


def test_in_a_receive_as_well() -> None:
    def receives(step: int, src: int) -> Look:
        frames = (f"recv {C10D}:2799", "train train.py:36", "main train.py:46")
        one = at({"step": step}, *frames, call="futex")
        (thread,) = one.threads
        inner = replace(thread.frames[0], locals=(("src", str(src)),))
        return replace(one, threads=(replace(thread, frames=(inner, *thread.frames[1:])),))

    verdict = judged(receives(1, 1), receives(0, 2), receives(0, 3), receives(0, 1))
    assert verdict.cause is None or verdict.cause.id != "other-round"
    assert 0 not in verdict.ranks.culprit


def test_who_has_passed_where_the_others_still_wait_is_in_another_round_for_that() -> None:
    """One left a save out that the others are in, and is in the backward of the next step."""

    def saves(step: int) -> Look:
        return at({"step": step}, "result saver.py:30", "main train.py:34", call="futex")

    def passed(step: int) -> Look:
        return at({"step": step}, "result saver.py:30", "main train.py:24", call="futex")

    looks = [saves(5), saves(5), passed(6)]
    verdict = judged(*looks)
    assert verdict.cause is None or verdict.cause.id != "other-round"
    assert judged(saves(5), saves(5), saves(6)).ranks.culprit == (2,)


def test_who_is_kept_by_its_event_loop_is_a_round_behind_because_of_that() -> None:
    loop = (
        "EpollSelector.select STD/selectors.py:468",
        "BaseEventLoop._run_once STD/asyncio/base_events.py:1884",
        "Runner.close STD/asyncio/runners.py:73",
    )
    kept = at({"step": 4}, *loop, "main train.py:42", "<module> train.py:48", call="epoll_wait")
    verdict = judged(*[kept if n == 3 else at_step(5) for n in range(5)])
    assert verdict.ranks.culprit == (3,)
    assert verdict.cause is None or verdict.cause.id != "other-round"


def at_step(step: int) -> Look:
    frames = (f"all_reduce {C10D}:3252", "main train.py:39", "<module> train.py:48")
    return at({"step": step}, *frames, call="futex")
