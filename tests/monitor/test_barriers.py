"""Who may go on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hangbisect.base.rank_state import (
    NodeRanks,
    find_missing_ranks,
    find_opening_barriers,
    find_released_ranks,
)
from hangbisect.monitor.main import _take_over
from hypothesis import given
from hypothesis import strategies as st

from .made_up import TABLE, hello, say, told

Said = tuple[int, str, float, dict[str, Any]]


def arrives(rank: int, number: int, at: float = 1.0) -> tuple[Said, Said]:
    return (rank, "reached", at, {"n": number}), (rank, "arrive", at, {"n": number})


def test_a_barrier_opens_when_the_last_rank_arrives() -> None:
    members = told(*arrives(0, 1))
    assert find_opening_barriers(members) == []
    assert find_missing_ranks(members, 1) == [1]
    say(members, 1, {"t": "reached", "n": 1, "at": 2.0})
    say(members, 1, {"t": "arrive", "n": 1, "at": 2.0})
    assert find_opening_barriers(members) == [1]
    assert find_missing_ranks(members, 1) == []


def test_it_stays_closed_for_a_rank_that_has_not_said_hello() -> None:
    members = told(world=1)
    say(members, 0, hello(0, world=2))
    for _, kind, at, fields in arrives(0, 1):
        say(members, 0, {"t": kind, "at": at, **fields})
    assert members.expected == {0, 1}
    assert find_opening_barriers(members) == []
    assert find_missing_ranks(members, 1) == [1]


def test_it_stays_closed_when_the_one_that_is_waited_for_has_left() -> None:
    members = told(*arrives(0, 1), (1, "bye", 2.0, {"status": 0}))
    members.by_rank[1].left = True
    assert find_opening_barriers(members) == []


def test_a_rank_that_skips_ahead_opens_those_behind_it() -> None:
    members = told(*arrives(0, 1), (1, "reached", 2.0, {"n": 3}))
    assert find_opening_barriers(members) == [1]


def test_an_open_barrier_lets_everyone_go_that_it_held() -> None:
    members = told(*arrives(0, 1), *arrives(1, 1))
    members.opens(1, 3.0)
    assert [m.held_at for m in members] == [None, None]
    assert [m.entered for m in members] == [3.0, 3.0]
    assert find_opening_barriers(members) == []


def test_who_waits_for_what_rank_0_does_is_released_when_it_is_done() -> None:
    waits: Said = (1, "await", 1.0, {"what": "logs directory", "ranks": [0]})
    members = told(waits)
    assert find_released_ranks(members) == []
    say(members, 0, {"t": "did", "what": "something else", "at": 2.0})
    assert find_released_ranks(members) == []
    say(members, 0, {"t": "did", "what": "logs directory", "at": 3.0})
    assert [m.rank for m in find_released_ranks(members)] == [1]


def test_who_cannot_know_the_first_rank_here_waits_for_it_if_it_is_here() -> None:
    members = told(
        (0, "await", 1.0, {"what": "logs directory", "ranks": []}),
        (1, "await", 1.0, {"what": "logs directory", "ranks": []}),
    )
    assert [m.awaits for m in members] == [(), (0,)]


def test_who_has_waited_long_enough_waits_no_more() -> None:
    members = told(
        (1, "await", 1.0, {"what": "logs directory", "ranks": [0]}),
        (1, "waits_no_more", 9.0, {"what": "logs directory"}),
    )
    assert not members.by_rank[1].waits_for_us


def test_who_comes_after_it_is_done_does_not_wait() -> None:
    members = told(
        (0, "did", 1.0, {"what": "logs directory"}),
        (1, "await", 2.0, {"what": "logs directory", "ranks": [0]}),
    )
    assert not members.by_rank[1].waits_for_us


def test_who_was_let_go_is_not_held_by_the_monitor_that_goes_on() -> None:
    asked = {"t": "await", "rank": 1, "at": 1.0, "what": "logs directory", "ranks": [0]}
    done = {"t": "did", "rank": 0, "at": 2.0, "what": "logs directory"}
    off = {"t": "barriers off", "why": "one left"}
    noted = [hello(0), hello(1), asked, done, off, {"t": "await", "rank": 0}, [7]]
    files = SimpleNamespace(events=lambda: noted)
    job: Any = SimpleNamespace(files=files, members=NodeRanks(TABLE), lockstep=True, said=[])
    job.say = job.said.append
    server: Any = SimpleNamespace(watch=lambda member: None)
    _take_over(job, server)
    assert [m.waits_for_us for m in job.members] == [False, False]
    assert (job.lockstep, job.barrier_opened, len(job.said)) == (False, "one left", 1)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=30))
def test_no_barrier_opens_before_everyone_has_reached_it(steps: list[tuple[int, int]]) -> None:
    members = told(world=4)
    for rank, number in steps:
        for _, kind, at, fields in arrives(rank, number):
            say(members, rank, {"t": kind, "at": at, **fields})
        for opened in find_opening_barriers(members):
            assert all(m.reached >= opened for m in members)
            assert find_missing_ranks(members, opened) == []
            members.opens(opened, 2.0)
