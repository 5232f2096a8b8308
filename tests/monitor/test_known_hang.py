"""What a search asks of the watch: an early end past a place, and of a hang that is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.process_facts import Frame, Look, Thread
from hangbisect.base.verdict_facts import HangPlace
from hangbisect.monitor.clocks import (
    KnownHang,
    TimeLimits,
    are_ranks_past,
    find_overdue,
    parse_known_hang,
)

from .made_up import at_step, look, say, told

KNOWN = KnownHang(HangPlace("wandb_logger", stacks=((("a.py", "wait"), ("b.py", "main")),)), 3.0)


def with_stack(*frames: tuple[str, str]) -> Look:
    thread = Thread(100, None, False, False, tuple(Frame(n, f, 7) for f, n in frames))
    return replace(look(1.0), threads=(thread,))


def test_what_a_file_says_of_a_known_hang_is_read() -> None:
    found = parse_known_hang(
        {"checkpoint": "training", "phase": "wrap", "stacks": [[["a.py", "f"]]], "still": 4}
    )
    assert found.place == HangPlace("training", "wrap", stacks=((("a.py", "f"),),))
    assert found.still == 4.0


def test_in_the_place_in_question_the_clock_runs_out_sooner() -> None:
    members = at_step(3, at=10.0)
    limits = TimeLimits({}, stall=20.0, known=KNOWN)
    assert find_overdue(members, members.by_rank[0], limits, 12.9) is None
    found = find_overdue(members, members.by_rank[0], limits, 13.1)
    assert found is not None
    assert (found.clock, found.since) == ("known", 13.0)


def test_elsewhere_it_is_as_patient_as_ever() -> None:
    members = at_step(2, at=10.0)
    limits = TimeLimits({}, stall=20.0, known=KNOWN)
    assert find_overdue(members, members.by_rank[0], limits, 29.9) is None
    found = find_overdue(members, members.by_rank[0], limits, 30.1)
    assert found is not None
    assert found.clock == "still"


def test_only_the_known_stack_shows_the_known_hang() -> None:
    assert KNOWN.is_shown_by([with_stack(("a.py", "wait"), ("b.py", "main"))])
    assert KNOWN.is_shown_by([with_stack(("a.py", "Event.wait"), ("b.py", "main"))])
    assert not KNOWN.is_shown_by([with_stack(("a.py", "read"), ("b.py", "main"))])
    assert not KNOWN.is_shown_by([look(1.0)])
    assert not KNOWN.is_shown_by([])


def test_a_look_that_found_no_stack_does_not_hide_the_one_before() -> None:
    assert KNOWN.is_shown_by([with_stack(("a.py", "wait"), ("b.py", "main")), look(2.0)])


@pytest.mark.parametrize(("name", "past"), [("arguments", True), ("wandb_logger", False)])
def test_past_a_checkpoint_are_all_ranks_or_none(name: str, past: bool) -> None:
    members = at_step(3, at=10.0)
    assert are_ranks_past(members, name) is past
    say(members, 0, {"t": "reached", "n": 3, "at": 11.0})
    assert not are_ranks_past(members, "wandb_logger")
    say(members, 1, {"t": "reached", "n": 3, "at": 12.0})
    assert are_ranks_past(members, "wandb_logger")


def test_past_the_last_checkpoint_is_only_who_has_ended() -> None:
    members = told(*[(rank, "reached", 5.0, {"n": 4}) for rank in (0, 1)])
    assert not are_ranks_past(members, "training")
    at_the_end = KnownHang(HangPlace("training"), 3.0)
    assert at_the_end.is_place_of(members, members.by_rank[0])
    assert not at_the_end.is_place_of(at_step(4, 5.0), at_step(3, 5.0).by_rank[0])


def test_past_a_phase_is_in_a_later_one_or_past_its_checkpoint() -> None:
    walked = [(rank, "reached", 5.0, {"n": 3}) for rank in (0, 1)]
    members = told(*walked)
    for rank in (0, 1):
        say(members, rank, {"t": "enter", "n": 4, "at": 6.0})
        say(members, rank, {"t": "phase", "n": 4, "name": "process_group", "at": 7.0})
    assert not are_ranks_past(members, "process_group")
    say(members, 0, {"t": "phase", "n": 4, "name": "first_step", "at": 8.0})
    assert not are_ranks_past(members, "process_group")
    say(members, 1, {"t": "reached", "n": 4, "at": 9.0})
    assert are_ranks_past(members, "process_group")
    assert not are_ranks_past(members, "steady")


def test_nobody_is_past_anything_before_all_have_come() -> None:
    members = at_step(3, at=10.0)
    members.expected = {0, 1, 2}
    assert not are_ranks_past(members, "script")
