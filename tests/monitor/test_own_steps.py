from __future__ import annotations

from typing import Any

import pytest
from hangbisect.base.checkpoints import STARTUP, STARTUP_BY_NAME
from hangbisect.base.rank_state import NodeRanks, RankState
from hangbisect.monitor import clocks
from hangbisect.monitor.clocks import STEADY, TimeLimits, are_ranks_past
from hypothesis import given
from hypothesis import strategies as st

from .made_up import say

LIMITS = TimeLimits({}, 20.0)


def script(ranks: int = 2) -> NodeRanks:
    members = NodeRanks(STARTUP, runs_script=True)
    for rank in range(ranks):
        place = {"local_rank": rank, "local_world_size": ranks, "world_size": ranks, "attempt": 0}
        hello = {"t": "hello", "rank": rank, "pid": 100 + rank, "host": "n1", "began": 0.0}
        say(members, rank, {**hello, **place, "at": 1.0})
    return members


def begin(members: NodeRanks, rank: int, step: str, at: float, **more: Any) -> RankState:
    said = {"t": "begin", "step": step, "k": 1, "depth": 0, "call": f"x.{step}", "at": at}
    of = {"title": step.upper(), "component": "data", "deadline": 60.0, "checkpoint": None}
    say(members, rank, {**said, **of, "phase": None, **more})
    return members.by_rank[rank]


def end(members: NodeRanks, rank: int, step: str, at: float, k: int = 1, **more: Any) -> RankState:
    say(members, rank, {"t": "end", "step": step, "k": k, "failed": False, "at": at, **more})
    return members.by_rank[rank]


def inside(member: RankState) -> tuple[int | None, str, str | None]:
    assert member.inside is not None
    return member.inside.shown, member.inside.name, member.inside.phase


def test_a_step_that_corresponds_to_a_checkpoint_is_told_by_its_number() -> None:
    members = script()
    one = begin(members, 0, "wandb_init", 5.0, checkpoint="wandb_logger")
    row = STARTUP_BY_NAME["wandb_logger"]
    assert inside(one) == (row.number, "wandb_logger", None)
    assert one.inside is not None
    assert one.inside.words == f"checkpoint {row.number} WandbLogger ready"
    assert one.announced == "x.wandb_init"
    two = begin(members, 1, "init_process_group", 5.0, checkpoint="training", phase="process_group")
    number = STARTUP_BY_NAME["training"].number
    assert inside(two) == (number, "training", "process_group")


def test_a_step_of_no_checkpoint_has_its_own_name_and_no_number() -> None:
    one = begin(script(), 0, "hub_download", 5.0)
    assert inside(one) == (None, "hub_download", None)
    assert one.inside is not None
    assert one.inside.words == "HUB_DOWNLOAD"


def test_inside_a_checkpoint_it_is_told_by_that_and_late_by_its_own_deadline() -> None:
    members = script()
    begin(members, 0, "tokenizer", 5.0, checkpoint="tokenizer", deadline=300.0)
    one = begin(members, 0, "hub_download", 6.0, deadline=30.0)
    assert inside(one) == (STARTUP_BY_NAME["tokenizer"].number, "tokenizer", None)
    assert clocks.find_deadline(members, one, LIMITS) == 30.0
    assert one.announced == "x.hub_download"


def test_between_two_steps_it_is_the_script() -> None:
    members = script()
    assert inside(members.by_rank[0]) == (None, "script", None)
    begin(members, 0, "a", 5.0)
    one = end(members, 0, "a", 6.0)
    assert inside(one) == (None, "script", None)
    assert one.inside is not None
    assert one.inside.title == "Script after A"
    assert one.announced == ""


def test_whoever_began_a_later_step_is_further() -> None:
    members = script()
    for rank in (0, 1):
        begin(members, rank, "a", 2.0)
        end(members, rank, "a", 3.0)
    behind = members.by_rank[0]
    ahead = begin(members, 1, "b", 4.0)
    assert behind.reached == ahead.reached  # one is on its way to b, the other in it
    end(members, 1, "b", 5.0)
    assert behind.reached < ahead.reached


def test_inside_an_outer_step_again_it_is_no_less_far() -> None:
    members = script()
    begin(members, 0, "fit", 2.0, deadline=None)
    begin(members, 0, "setup", 3.0)
    one = end(members, 0, "setup", 4.0)
    assert inside(one)[1] == "fit"
    assert one.reached >= begin(members, 1, "setup", 4.0).reached


def test_an_end_that_is_not_told_ends_with_the_one_around_it() -> None:
    members = script()
    begin(members, 0, "outer", 2.0)
    begin(members, 0, "inner", 3.0)
    assert end(members, 0, "outer", 4.0).open == ()


def test_a_failed_step_is_not_reached() -> None:
    members = script()
    begin(members, 0, "a", 2.0)
    assert end(members, 0, "a", 3.0, failed=True).done == 0


def test_each_step_has_its_own_deadline_and_the_script_none() -> None:
    members = script()
    member = members.by_rank[0]
    assert clocks.find_deadline(members, member, LIMITS) is None
    begin(members, 0, "a", 5.0, deadline=30.0)
    assert clocks.find_deadline(members, member, LIMITS) == 30.0
    begin(members, 0, "b", 6.0, deadline=None)
    assert clocks.find_deadline(members, member, LIMITS) is None


@pytest.mark.parametrize("name", ["init", "process_group", "training", ""])
def test_a_time_limit_is_given_by_any_of_its_names(name: str) -> None:
    members = script()
    member = begin(members, 0, "init", 5.0, checkpoint="training", phase="process_group")
    assert clocks.find_deadline(members, member, TimeLimits({name: 7.0}, 20.0)) == 7.0


def test_who_is_quiet_is_never_overdue() -> None:
    members = script()
    member = begin(members, 0, "a", 5.0, deadline=30.0)
    assert clocks.find_overdue(members, member, LIMITS, 1000.0) is not None
    say(members, 0, {"t": "quiet", "at": 6.0})
    assert clocks.find_overdue(members, member, LIMITS, 1000.0) is None


def test_what_stirs_is_looked_at_all_the_same_once_another_has_left() -> None:
    members = script()
    member = begin(members, 0, "a", 5.0, deadline=300.0)
    member.stirred_at = 39.0
    assert clocks.find_overdue(members, member, LIMITS, 40.0) is None
    members.by_rank[1].left = True
    overdue = clocks.find_overdue(members, member, LIMITS, 40.0)
    assert overdue is not None
    assert overdue.clock == "still"


def test_past_a_step_is_who_ended_it_or_a_later_one() -> None:
    members = script()
    begin(members, 0, "wandb_init", 2.0, checkpoint="wandb_logger")
    assert not are_ranks_past(members, "wandb_logger")
    end(members, 0, "wandb_init", 3.0)
    assert not are_ranks_past(members, "wandb_logger")  # rank 1 may still do it
    begin(members, 1, "setup", 3.0)
    end(members, 1, "setup", 4.0)
    assert are_ranks_past(members, "wandb_logger")
    begin(members, 1, "wandb_init", 5.0, k=2, checkpoint="wandb_logger")
    assert not are_ranks_past(members, "wandb_logger")


def test_past_the_first_training_steps_is_who_is_watched_no_more() -> None:
    members = script()
    assert not are_ranks_past(members, STEADY)
    for rank in (0, 1):
        say(members, rank, {"t": "quiet", "at": 6.0})
    assert are_ranks_past(members, STEADY)


_NAMES = st.sampled_from("abc")


@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["begin", "end"]), _NAMES), max_size=40)
)
def test_whatever_ranks_tell_none_falls_back(told: list[tuple[int, str, str]]) -> None:
    members = script()
    furthest = {0: 0, 1: 0}
    for at, (rank, kind, name) in enumerate(told):
        one = (begin if kind == "begin" else end)(members, rank, name, 2.0 + at)
        assert one.reached >= one.done
        assert one.done >= furthest[rank]
        furthest[rank] = one.done
        assert one.inside is not None
        assert one.step == one.reached + 1


def test_a_step_that_raised_is_known_until_another_one_ends_well() -> None:
    """`try: fit() finally: barrier()`: what the rank does below `finally` is no sign of health."""
    members = script()
    begin(members, 0, "fit", 5.0)
    begin(members, 0, "validation", 6.0)
    end(members, 0, "validation", 7.0, failed=True)
    assert end(members, 0, "fit", 7.1, failed=True).raised == "x.fit"
    assert begin(members, 0, "barrier", 7.2).raised == "x.fit"
    assert end(members, 0, "barrier", 8.0).raised == ""
