"""Silences of a rank within one step: those count that looks saw, and that ended by themselves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hangbisect.base.rank_history import Silences
from hangbisect.evidence.successive_looks import PeerRequest
from hangbisect.monitor.clocks import TimeLimits, pauses_until
from hangbisect.monitor.inspection import Inspection

from .made_up import at_step

GAP = 10.0


def test_a_silence_lasts_from_what_moved_until_something_moves_again() -> None:
    made = Silences()
    for now in (15.0, 20.0, 25.0):
        made.sees_still(10.0, now)
    assert made.longest == 0.0  # it has not ended
    made.ends(27.0, GAP)
    assert made.longest == 17.0


def test_the_longest_counts() -> None:
    made = Silences()
    for moved_at, ended in ((0.0, 16.0), (16.0, 36.0), (36.0, 40.0)):
        made.sees_still(moved_at, ended - 1.0)
        made.ends(ended, GAP)
    assert made.longest == 20.0


def test_between_looks_that_all_saw_it_move_there_was_none() -> None:
    made = Silences()
    for at in (10.0, 100.0, 200.0):
        made.ends(at, GAP)
    assert made.longest == 0.0


def test_what_no_look_saw_is_not_part_of_one() -> None:
    """Of a rank that stirs no looks are taken: it may have moved long before the next one."""
    made = Silences()
    made.sees_still(10.0, 15.0)
    made.ends(300.0, GAP)
    assert made.longest == 15.0


def test_what_computed_was_not_silent() -> None:
    made = Silences()
    made.sees_still(0.0, 5.0)
    made.sees_work(100.0)
    made.ends(101.0, GAP)
    assert made.longest == 0.0
    made.sees_work(200.0)
    made.sees_still(101.0, 205.0)
    made.ends(206.0, GAP)
    assert made.longest == 6.0


def test_what_came_by_itself_ends_a_silence_but_is_no_movement() -> None:
    made = Silences()
    for now in (15.0, 20.0, 25.0):
        made.sees_still(10.0, now)
    assert made.lasted == 15.0
    made.hears(27.0)
    assert (made.lasted, made.longest) == (0.0, 0.0)
    made.sees_still(10.0, 30.0)  # it has not moved since, but was not silent for so long
    assert made.lasted == 3.0


def test_a_rank_may_pause_for_twice_as_long_again_until_the_limit_of_slow_steps() -> None:
    members, limits = at_step(3, at=0.0), TimeLimits({"": 12.0}, stall=20.0, slow_limit=5.0)
    one = members.by_rank[1]
    one.moved_at = 30.0
    assert pauses_until(members, one, limits) == 0.0  # nothing is known of it
    one.silences.longest = 14.0
    assert pauses_until(members, one, limits) == 58.0
    one.silences.longest = 100.0
    assert pauses_until(members, one, limits) == 60.0  # five deadlines


def test_a_step_that_begins_knows_nothing_of_the_one_before() -> None:
    members = at_step(3, at=0.0)
    members.by_rank[0].silences.longest = 14.0
    members.by_rank[0].forget_looks()
    assert members.by_rank[0].silences.longest == 0.0


class Looked(Inspection):
    """Looks that found what `finds` says: "" for nothing, "computes", or what moved."""

    def finds(self, what: str) -> None:
        for member in self.members:
            self._finding = what
            member.looks = []
        self.note_who_moved(self.members)

    def _note_movement(self, member: Any) -> None:
        self.moved[member.rank] = self._finding if self._finding != "computes" else ""
        self.busy[member.rank] = self._finding == "computes"
        if self.moved[member.rank]:
            self._moves(member, self.clock, self._finding)

    def at(self, now: float) -> Looked:
        self.clock = now
        return self


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Looked:
    """Of two ranks, in a step since 0.0."""
    members = at_step(3, at=0.0)
    job: Any = SimpleNamespace(members=members, limits=TimeLimits({}, stall=20.0))
    job.writers, job.lives, job.lock_holders = {}, {}, None
    made = Looked(job)
    monkeypatch.setattr("hangbisect.monitor.inspection.time.monotonic", lambda: made.clock)
    return made


def test_looks_note_the_silences_of_each_rank(looked: Looked) -> None:
    for now in (5.0, 10.0, 15.0):
        looked.at(now).finds("")
    looked.at(17.0).finds("gets answers")
    for now in (22.0, 27.0, 32.0):
        looked.at(now).finds("")
    assert [m.silences.longest for m in looked.members] == [17.0, 17.0]
    looked.at(37.0).finds("gets answers")
    assert [m.silences.longest for m in looked.members] == [20.0, 20.0]


def test_they_note_none_of_a_rank_that_waits_in_our_barrier_or_computes(looked: Looked) -> None:
    looked.members[0].held_at = 3
    looked.at(10.0).finds("computes")
    looked.at(11.0).finds("new code")
    looked.members[1].looks = []
    assert [m.silences.longest for m in looked.members] == [0.0, 0.0]
    looked.at(16.0).finds("")
    looked.at(17.0).finds("new code")
    assert [m.silences.longest for m in looked.members] == [0.0, 6.0]


@pytest.mark.parametrize(("every", "moved_at"), [(25.0, 200.0), (5.0, 65.0)])
def test_what_comes_after_a_silence_counts_until_the_limit_of_slow_steps(
    looked: Looked, every: float, moved_at: float
) -> None:
    """A service on a Unix socket, whose bytes nobody counts, may be slow; what comes more often may
    be a heartbeat, and counts for three times --stall only.
    """
    one = looked.members[1]
    heard: PeerRequest | None = None
    looked.job.limits = TimeLimits({"": 60.0}, stall=20.0, slow_limit=5.0)
    for tick in range(1, 81):
        now = 2.5 * tick
        looked.moved[one.rank], looked.busy[one.rank] = "", False
        if now % every == 0.0:
            heard = PeerRequest(now, "hears from who it waits for", answered=False, heard=True)
        if heard is not None:
            looked._asks(one, heard)
        looked._note_silence(one, now)
    assert one.moved_at == moved_at
