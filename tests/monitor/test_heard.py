"""What the process around a launcher makes of what monitors tell."""

from __future__ import annotations

from typing import Any

from hangbisect.base.events import decode
from hangbisect.base.outcomes import BADNESS
from hangbisect.monitor.watcher_link import JobProgress
from hypothesis import given
from hypothesis import strategies as st

KINDS = ("hello", "enter", "phase", "reached", "arrive", "opened", "verdict")


def heard(*messages: dict[str, Any]) -> JobProgress:
    found = JobProgress()
    for message in messages:
        found.take(decode(message))
    return found


def hello(rank: int) -> dict[str, Any]:
    return {"t": "hello", "rank": rank, "pid": 100 + rank, "at": 1.0}


def test_each_rank_is_where_it_said_last() -> None:
    found = heard(
        hello(0),
        hello(1),
        {"t": "reached", "rank": 0, "n": 3, "at": 4.0},
        {"t": "arrive", "rank": 0, "n": 3, "held": True},
        {"t": "phase", "rank": 1, "n": 3, "name": "wrap", "at": 5.0},
    )
    assert (found.ranks[0].step, found.ranks[0].held_at) == (4, 3)
    assert (found.ranks[1].phase, found.ranks[1].since) == ("wrap", 5.0)
    found.take(decode({"t": "opened", "n": 3, "at": 6.0}))
    assert (found.ranks[0].held_at, found.ranks[0].since) == (None, 6.0)


def test_of_several_nodes_the_one_that_did_not_end_well_counts() -> None:
    bad = {"t": "verdict", "outcome": "hang", "ends": True}
    good = {"t": "verdict", "outcome": "ok", "ends": True}
    for messages in ((bad, good), (good, bad)):
        assert heard(hello(0), *messages).outcome == "hang"


@given(st.permutations(BADNESS))
def test_of_several_bad_ends_the_worst_counts_whichever_is_told_last(outcomes: list[str]) -> None:
    verdicts = [{"t": "verdict", "outcome": one, "ends": True} for one in outcomes]
    for last in range(1, len(verdicts) + 1):
        worst = max(outcomes[:last], key=BADNESS.index)
        assert heard(hello(0), *verdicts[:last]).outcome == worst


def test_what_was_taken_back_or_was_of_an_attempt_before_is_forgotten() -> None:
    bad = {"t": "verdict", "outcome": "hang", "ends": False}
    assert heard(hello(0), bad, {"t": "taken back"}).outcome is None
    assert heard(hello(0), bad, hello(0)).outcome is None


def test_of_several_jobs_of_one_command_the_worst_counts_whoever_comes_later() -> None:
    bad = {"t": "verdict", "outcome": "hang", "ends": False, "job": "a"}
    good = {"t": "verdict", "outcome": "ok", "ends": False, "job": "b"}
    assert heard(bad, {**hello(0), "job": "b"}, good).outcome == "hang"
    assert heard(bad, good, {"t": "taken back", "job": "a"}).outcome == "ok"


def test_a_watch_that_failed_is_known() -> None:
    assert not heard(hello(0)).failed
    assert heard(hello(0), {"t": "failed"}).failed


def test_monitors_and_where_they_write_are_known() -> None:
    found = heard(
        {"t": "watches", "pid": 7, "run_dir": "runs/a", "titles": {"1": "Script started"}}
    )
    assert (found.monitors, found.run_dirs) == ({7}, ["runs/a"])
    assert found.titles == {1: "Script started"}


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 3), st.integers(0, 12))))
def test_any_order_of_messages_is_taken(said: list[tuple[str, int, int]]) -> None:
    found = JobProgress()
    for kind, rank, number in said:
        message: dict[str, Any] = {"t": kind, "rank": rank, "n": number, "at": 1.0, "pid": 9}
        message |= {"name": "wrap", "outcome": "ok", "ends": True}
        found.take(decode(message))
    assert set(found.ranks) <= {0, 1, 2, 3}


def test_who_only_starts_ranks_is_none_and_the_rank_that_comes_by_its_number_is_one() -> None:
    found = heard(hello(0), {"t": "starts", "rank": 0, "at": 2.0})
    assert found.ranks == {}
    found.take(decode({**hello(0), "pid": 300, "at": 9.0}))
    assert found.ranks[0].pid == 300


def test_the_hosts_of_other_nodes_are_known_when_their_monitors_are_gone() -> None:
    found = heard({"t": "hosts", "hosts": {"n2": "10.0.0.2"}})
    assert found.hosts == {"n2": "10.0.0.2"}
