"""The two clocks, with time in the test's hand."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hangbisect.base.rank_state import NodeRanks
from hangbisect.monitor import clocks
from hangbisect.monitor.clocks import (
    AFTER_A_VERDICT,
    LEAVING_LIMIT,
    TRAINING_SILENCE,
    NodeWait,
    TimeLimits,
    asking_until,
    find_deadline,
    find_overdue,
    has_progressed,
    required_stillness,
    wants_another_look,
    wants_look,
)
from hypothesis import given
from hypothesis import strategies as st

from .made_up import at_step, look, member, say, told

OWN = TimeLimits({}, stall=1000.0)


def clock(members: NodeRanks, now: float, limits: TimeLimits = OWN, rank: int = 0) -> str | None:
    found = find_overdue(members, members.by_rank[rank], limits, now)
    return found.clock if found else None


def test_each_checkpoint_has_a_deadline_of_its_own() -> None:
    members = at_step(3, at=10.0)
    assert clock(members, 69.9) is None
    assert clock(members, 70.1) == "late"


def test_a_rank_is_late_since_its_deadline() -> None:
    members = at_step(3, at=10.0)
    found = find_overdue(members, members.by_rank[1], OWN, 200.0)
    assert found is not None
    assert (found.rank, found.since) == (1, 70.0)


def test_a_timeout_for_all_or_for_one_checkpoint_is_the_deadline() -> None:
    members = at_step(3, at=10.0)
    assert clock(members, 15.1, TimeLimits({"": 5.0}, stall=1000.0)) == "late"
    by_name = TimeLimits({"": 5.0, "wandb_logger": 8.0}, stall=1000.0)
    assert clock(members, 15.1, by_name) is None
    assert clock(members, 18.1, by_name) == "late"


def test_a_step_of_training_that_it_tells_of_is_getting_on_and_a_line_is_not() -> None:
    members = at_step(12, at=10.0)
    assert has_progressed(members.by_rank[0], since=9.0)
    say(members, 0, {"t": "line", "text": "still here", "at": 20.0})
    assert not has_progressed(members.by_rank[0], since=15.0)
    say(members, 0, {"t": "pulse", "step": 7, "at": 21.0})
    assert has_progressed(members.by_rank[0], since=15.0)


def test_in_lockstep_the_clock_begins_when_the_last_rank_left_the_step_before() -> None:
    members = told((0, "reached", 5.0, {"n": 2}), (0, "arrive", 5.0, {"n": 2}))
    say(members, 1, {"t": "reached", "n": 2, "at": 100.0})
    members.opens(2, 100.0)
    assert clock(members, 159.0) is None
    assert clock(members, 160.1) == "late"


def test_a_rank_that_waits_in_our_barrier_or_for_a_rank_it_named_is_never_overdue() -> None:
    held = told((0, "reached", 1.0, {"n": 1}), (0, "arrive", 1.0, {"n": 1}))
    named = told((0, "enter", 1.0, {"n": 3}), (0, "await", 1.0, {"what": "it", "ranks": [1]}))
    for members in (held, named):
        assert clock(members, 1e6, TimeLimits({"": 1.0}, stall=1.0)) is None
        assert clock(members, 1e6, TimeLimits({"": 1.0}, stall=1.0), rank=1) == "late"


def test_a_rank_that_left_is_never_overdue() -> None:
    members = at_step(3, at=10.0)
    members.by_rank[0].left = True
    assert clock(members, 1e6) is None


def test_what_stands_still_is_overdue_before_its_deadline() -> None:
    members = at_step(3, at=10.0)
    assert clock(members, 29.9, TimeLimits({}, stall=20.0)) is None
    assert clock(members, 30.1, TimeLimits({}, stall=20.0)) == "still"


def test_a_word_or_a_stir_sets_the_clock_of_stillness_back() -> None:
    members = at_step(3, at=10.0)
    say(members, 0, {"t": "line", "text": "Imported torch", "at": 25.0})
    members.by_rank[1].stirred_at = 25.0
    for rank in (0, 1):
        assert clock(members, 44.9, TimeLimits({}, stall=20.0), rank) is None
        assert clock(members, 45.1, TimeLimits({}, stall=20.0), rank) == "still"


def test_a_phase_has_a_deadline_of_its_own_counted_from_its_beginning() -> None:
    members = at_step(4, at=10.0)
    say(members, 0, {"t": "phase", "name": "first_step", "at": 500.0})
    assert clock(members, 559.0) is None
    assert clock(members, 560.1) == "late"


def test_a_timeout_for_a_step_is_one_for_each_of_its_phases_but_those_that_are_never_late() -> None:
    members = at_step(4, at=10.0)
    limits = TimeLimits({"training": 7.0})
    say(members, 0, {"t": "phase", "name": "first_step", "at": 10.0})
    assert find_deadline(members, members.by_rank[0], limits) == 7.0
    say(members, 0, {"t": "phase", "name": "steady", "at": 20.0})
    assert find_deadline(members, members.by_rank[0], limits) is None


def test_a_training_is_never_late_however_long_it_takes() -> None:
    members = at_step(4, at=0.0)
    say(members, 0, {"t": "phase", "name": "steady", "at": 0.0})
    for minute in range(600):
        say(members, 0, {"t": "pulse", "step": minute, "at": minute * 60.0})
        assert clock(members, minute * 60.0 + 59.0, TimeLimits({"": 1.0}, stall=1000.0)) is None


def test_a_training_without_a_word_is_looked_at_after_ten_of_its_longest_silences() -> None:
    members = at_step(4, at=0.0)
    say(members, 0, {"t": "phase", "name": "steady", "at": 0.0})
    say(members, 0, {"t": "pulse", "step": 1, "at": 30.0})
    assert clock(members, 30.0 + TRAINING_SILENCE + 1) is None
    assert clock(members, 30.0 + 301.0) == "late"


def test_a_rank_that_has_finished_has_a_while_to_leave() -> None:
    members = at_step(4, at=0.0)
    say(members, 0, {"t": "reached", "n": 4, "at": 10.0})
    say(members, 0, {"t": "finished", "at": 10.0})
    assert clock(members, 10.0 + LEAVING_LIMIT - 1) is None
    assert clock(members, 10.0 + LEAVING_LIMIT + 1) == "late"


@pytest.mark.parametrize(("allowed", "seconds"), [(2.0, 2.0), (30.0, 10.0), (900.0, 20.0)])
def test_a_late_rank_must_have_been_still_for_a_part_of_its_deadline(
    allowed: float, seconds: float
) -> None:
    assert required_stillness(allowed, TimeLimits({}, stall=20.0)) == seconds


def test_a_phase_that_is_never_late_must_have_been_still_for_the_whole_stall() -> None:
    assert required_stillness(None, TimeLimits({}, stall=33.0)) == 33.0


def test_one_that_moves_now_and_then_is_given_twice_the_pause_in_between() -> None:
    limits = TimeLimits({}, stall=20.0)
    assert required_stillness(12.0, limits, pause=3.0) == 6.0
    assert required_stillness(12.0, limits, pause=60.0) == 20.0
    assert required_stillness(60.0, limits, pause=3.0) == 20.0


def test_answers_count_for_as_long_as_a_busy_rank_may_be_and_new_connections_for_less() -> None:
    members, limits = at_step(3, at=0.0), TimeLimits({}, stall=20.0, slow_limit=5.0)
    one = members.by_rank[0]
    one.asks_since = 10.0
    assert asking_until(members, one, limits, answered=True) == 10.0 + 5 * 60.0
    assert asking_until(members, one, limits, answered=False) == 10.0 + 3 * 20.0


def test_a_timeout_for_the_step_counts_more_than_one_for_all() -> None:
    members = at_step(4, at=10.0)
    limits = TimeLimits({"": 3.0, "training": 60.0})
    assert find_deadline(members, members.by_rank[0], limits) == 60.0
    say(members, 0, {"t": "phase", "name": "first_step", "at": 10.0})
    assert find_deadline(members, members.by_rank[0], limits) == 60.0


def test_looks_come_well_before_a_clock_runs_out_and_now_and_then_after() -> None:
    one = at_step(3, at=0.0).by_rank[0]
    limits = TimeLimits({}, stall=20.0)
    assert not wants_look(one, limits, 1.0)
    assert wants_look(one, limits, 10.0)
    one.looks.append(look(at=10.0))
    assert not wants_look(one, limits, 11.0)
    assert wants_look(one, limits, 20.0)


def test_no_look_is_wanted_at_a_rank_that_left_or_that_we_hold() -> None:
    limits = TimeLimits({}, stall=20.0)
    for fields in ({"left": True}, {"left_at": 1.0}, {"held_at": 2}, {"awaits": (0,)}):
        assert not wants_look(member(**fields), limits, 1e6)


@given(
    st.floats(1, 1e4), st.floats(1, 1e4), st.floats(0, 1e5), st.floats(0, 1e5), st.integers(1, 4)
)
def test_once_a_clock_ran_out_it_stays_so_until_the_rank_gets_on(
    timeout: float, stall: float, now: float, later: float, step: int
) -> None:
    members = at_step(step, at=0.0)
    limits = TimeLimits({"": timeout}, stall=stall)
    if clock(members, now, limits):
        assert clock(members, now + later, limits)


def test_what_was_called_hung_is_looked_at_again_only_when_something_of_it_stirs() -> None:
    one = at_step(3, at=10.0).by_rank[1]
    one.looks = [look(20.0)]
    assert not wants_another_look(one, closed_at=21.0, now=60.0)
    one.stirred_at = 20.5  # before the verdict
    assert not wants_another_look(one, closed_at=21.0, now=60.0)
    one.stirred_at = 22.0
    assert not wants_another_look(one, closed_at=21.0, now=20.0 + AFTER_A_VERDICT)
    assert wants_another_look(one, closed_at=21.0, now=20.1 + AFTER_A_VERDICT)
    one.left_at = 22.1
    assert not wants_another_look(one, closed_at=21.0, now=60.0)


# ---- after a verdict that proved nothing ---------------------------------------------------------


def test_what_was_silent_is_looked_at_again_after_pauses_that_grow() -> None:
    looks = clocks.LaterLooks(100.0)
    at, taken = 100.0, []
    while at < 100.0 + 2000.0:
        if looks.is_due(at):
            taken.append(at - 100.0)
            looks.wait_longer(at)
        at += 0.25
    assert taken[:5] == [10.0, 30.0, 70.0, 150.0, 310.0]
    pauses = [b - a for a, b in pairwise(taken)]
    assert pauses == sorted(pauses)
    assert max(pauses) == clocks.MOST_PAUSE


def test_a_look_that_took_long_is_not_followed_by_another_at_once() -> None:
    looks = clocks.LaterLooks(100.0)
    assert looks.is_due(500.0)
    looks.wait_longer(503.0)
    assert not looks.is_due(503.0 + 2 * clocks.FIRST_PAUSE - 0.1)
    assert looks.is_due(503.0 + 2 * clocks.FIRST_PAUSE)


@given(st.floats(min_value=0.0, max_value=600.0))
def test_a_proof_that_comes_is_seen_within_as_long_again_as_it_took_to_come(came: float) -> None:
    looks, at = clocks.LaterLooks(0.0), 0.0
    while not (looks.is_due(at) and at >= came):
        if looks.is_due(at):
            looks.wait_longer(at)
        at += 0.25
    assert at <= came + max(clocks.FIRST_PAUSE, min(clocks.MOST_PAUSE, came + clocks.FIRST_PAUSE))


def test_a_launcher_that_stirs_waits_for_other_nodes_all_the_same() -> None:
    wait = NodeWait()
    assert wait.note("1 of 2 nodes", "", stirred=10.0) == 10.0
    assert wait.note("1 of 2 nodes", "", stirred=40.0) == 10.0
    assert wait.note("2 of 3 nodes", "", stirred=70.0) == 70.0  # one more has come
    assert wait.note("2 of 3 nodes", "reads", stirred=90.0) == 90.0
    assert wait.note("", "", stirred=95.0) == 95.0
    assert wait.note("", "", stirred=99.0) == 99.0  # at something else, which may take long
