"""Whether the whole job is kept from running, or one rank alone."""

from __future__ import annotations

import pytest
from hangbisect.monitor import clocks
from hangbisect.monitor.job_activity import explain_suspension

from .made_up import at_step

LAUNCHER, OUTER = 10, 9


@pytest.mark.parametrize(
    ("states", "suspended"),
    [
        ({100: "S", 101: "R", LAUNCHER: "S", OUTER: "S"}, False),
        ({100: "T", 101: "S", LAUNCHER: "S", OUTER: "S"}, False),
        ({100: "T", 101: "T", LAUNCHER: "S", OUTER: "S"}, True),
        ({100: "S", 101: "S", LAUNCHER: "T", OUTER: "S"}, True),
        ({100: "S", 101: "S", LAUNCHER: "S", OUTER: "T"}, True),
        ({100: "t", 101: "t", LAUNCHER: "S", OUTER: "S"}, False),
        ({100: "T", LAUNCHER: "S"}, False),
    ],
)
def test_a_job_is_suspended_with_what_started_it_or_with_all_its_ranks(
    states: dict[int, str], suspended: bool
) -> None:
    assert bool(explain_suspension(states, [100, 101], [LAUNCHER, OUTER])) is suspended


def test_one_rank_alone_that_is_stopped_is_no_suspension() -> None:
    assert not explain_suspension({100: "T", LAUNCHER: "S"}, [100], [LAUNCHER])


def test_clocks_begin_anew_after_a_pause() -> None:
    members, limits = at_step(3, at=10.0), clocks.TimeLimits({}, stall=20.0)
    one = members.by_rank[0]
    assert clocks.find_overdue(members, one, limits, 200.0) is not None
    clocks.restart_clocks(members, 195.0)
    assert clocks.find_overdue(members, one, limits, 200.0) is None
    late = clocks.find_overdue(members, one, limits, 216.0)
    assert late is not None
    assert late.since == 215.0
