"""What stands still at a look is a hang where something proves it, else silent."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.attach.answer import describe_state, hang_lines
from hangbisect.attach.judgement import Judgement, judge_nodes
from hangbisect.base.process_facts import Descriptor, Frame, Syscall
from hangbisect.base.rank_facts import RankFacts

from .test_words import BARRIER, FETCH, SLEEP, look, node, rank

WAITS = rank(0, BARRIER, "futex")


def judged(*ranks: RankFacts) -> Judgement:
    return judge_nodes([node(*ranks)], now=102.1)


def stopped(number: int) -> RankFacts:
    one = rank(number, FETCH, "")
    return replace(one, looks=tuple(replace(look, state="T") for look in one.looks))


def reads_its_own_pipe(number: int) -> RankFacts:
    one = rank(number, FETCH, "read")
    pid = 100 + number
    pipe = Descriptor(3, "pipe", "pipe:[7]", other_ends=(pid,))
    kernel = replace(one.looks[0].kernel[0], syscall=Syscall(0, "read", (3,), descriptors=(pipe,)))
    return replace(one, looks=tuple(replace(look, kernel=(kernel,)) for look in one.looks))


def gone(number: int) -> RankFacts:
    return RankFacts(number, number, None, "n01", alive=False, left=True, status=-9)


def sleeps(number: int, left: float) -> RankFacts:
    """A rank in a sleep that the kernel counts down: `left` seconds at the last look."""
    looks = []
    for at in (100.0, 101.0, 102.1):
        one = look(100 + number, SLEEP, "clock_nanosleep", at)
        call = Syscall(0, "clock_nanosleep", (0,) * 6, timeout=left + 102.1 - at)
        looks.append(replace(one, kernel=(replace(one.kernel[0], syscall=call),)))
    return RankFacts(number, number, 100 + number, "n01", looks=tuple(looks))


@pytest.mark.parametrize(
    "other", [stopped(1), reads_its_own_pipe(1), gone(1)], ids=["stopped", "own pipe", "gone"]
)
def test_what_is_proved_is_a_hang(other: RankFacts) -> None:
    found = judged(WAITS, other)
    assert (found.verdict.outcome, found.verdict.ranks.culprit) == ("hang", (1,))


@pytest.mark.parametrize(
    "other",
    [rank(1, SLEEP, "clock_nanosleep"), rank(1, FETCH, "recvfrom"), rank(1, FETCH, "futex")],
    ids=["sleep", "server", "futex"],
)
def test_what_may_go_on_is_silent_and_named_all_the_same(other: RankFacts) -> None:
    found = judged(WAITS, other)
    assert (found.verdict.outcome, found.verdict.ranks.culprit) == ("silent", (1,))
    assert found.silent_for is None


def test_it_says_when_the_wait_ends_by_itself() -> None:
    found = judged(WAITS, sleeps(1, left=57.9))
    assert found.verdict.outcome == "silent"
    assert found.silent_for == pytest.approx(58.0)  # the node was asked 0.1 s before the last look
    lines = hang_lines(found, "", describe_state(99, None, False), None)
    assert lines[-2:] == [
        "silent    nothing proves that it hangs: its wait ends by itself in 58 s",
        "job       still running, untouched; end it: hangbisect attach 99 --kill",
    ]


def test_it_says_which_limit_was_given_and_that_nobody_knows_since_when() -> None:
    site = "/venv/lib/python3.11/site-packages/requests/sessions.py"
    inner = Frame("Session.request", site, 589, locals=(("timeout", "(3.05, 27)"),))
    found = judged(WAITS, rank(1, inner, "recvfrom"))
    assert found.verdict.outcome == "silent"
    lines = hang_lines(found, "", describe_state(99, None, False), None)
    limit = "rank 1 waits for 27 s at most by the time limit of Session.request (sessions.py:589)"
    assert f"limit     {limit}: it gives up within 27 s of the first look" in lines


def test_a_sleep_of_days_that_others_wait_for_is_no_wait_that_ends() -> None:
    """No process group waits for a day: those who wait for it give up before."""
    found = judged(WAITS, sleeps(1, left=2 * 86_400.0))
    assert found.verdict.outcome == "hang"
    alone = judged(sleeps(0, left=2 * 86_400.0))
    assert alone.verdict.outcome == "silent"
