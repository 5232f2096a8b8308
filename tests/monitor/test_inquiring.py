"""What is made of looks: no rank is judged that has just ended, and a silence is no hang yet where
longer ones of the same step ended by themselves. Looks and clock are in the test's hand.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hangbisect.base.process_facts import Frame, Thread
from hangbisect.base.rank_state import NodeRanks
from hangbisect.base.verdict_facts import Wait
from hangbisect.collect.looks import RankClasses
from hangbisect.monitor import inquiry
from hangbisect.monitor.clocks import Overdue, TimeLimits
from hangbisect.monitor.rank_exits import find_present

from .made_up import TABLE, hello, look, say


class Life:
    """Of a process, as a pidfd tells it."""

    def __init__(self) -> None:
        self.is_over = False

    def has_ended(self) -> bool:
        return self.is_over


def job(runs_script: bool = True, world: int = 2) -> Any:
    """A job whose ranks have all said hello, a minute ago."""
    members = NodeRanks(TABLE, runs_script=runs_script)
    for rank in range(world):
        say(members, rank, hello(rank, world, at=time.monotonic() - 60.0))
    made = {
        "members": members,
        "limits": TimeLimits({}),
        "runs_script": runs_script,
        "is_trial": True,
        "said": [],
    }
    made |= {"writers": dict.fromkeys(range(world)), "lives": {r: Life() for r in range(world)}}
    made |= {
        "cannot_look": False,
        "table": TABLE,
        "outer": SimpleNamespace(awaits_ready=False),
        "nodes": None,
        "place": {"launcher": None},
        "server": None,
    }
    found = SimpleNamespace(**made)
    found.say = found.said.append
    return found


class Looks:
    """Looks at ranks that stand still; `meanwhile` happens during the last one, which pauses."""

    def __init__(self, of: Any, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.count, self.span, self.moved = 9, 20.0, dict[int, str]()
        self.present, self._meanwhile = find_present(of), meanwhile
        self._waits: dict[int, Wait | None] = dict.fromkeys(of.members.by_rank)
        every = frozenset(of.members.by_rank)
        self.classes = RankClasses(frozenset(), frozenset(), frozenset(), every)

    async def look(self, **how: Any) -> None:
        self._meanwhile()

    def snapshot(self) -> Any:
        return SimpleNamespace(waits=self._waits, ranks=())

    def facts(self) -> list[Any]:
        return []

    def spinning(self) -> frozenset[int]:
        return frozenset()

    def settled(self) -> RankClasses:
        return self.classes

    def remember_places(self) -> None:
        pass


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ranks for which a job was closed."""
    found: list[int] = []

    async def close_job(job: Any, server: Any, ended: str, seen: Any, due: Overdue) -> None:
        found.append(due.rank)

    monkeypatch.setattr(inquiry, "close_job", close_job)
    return found


def decide(of: Any, looks: Looks, rank: int = 0, clock: Any = "still") -> None:
    """Decide about a rank that stands still and waits for no other."""
    server = SimpleNamespace(ask_who_ended=lambda: None)
    asked = inquiry.Inquiry(of, server, lambda: False)  # type: ignore[arg-type]  # what it uses of it
    every = frozenset(of.members.by_rank)
    settled = RankClasses(frozenset(), frozenset(), frozenset(), every)
    due = Overdue(rank, clock, time.monotonic())
    asyncio.run(asked._decide(looks, settled, [due], ""))  # type: ignore[arg-type]  # the same


# ---- ranks that end ------------------------------------------------------------------------------


def test_a_rank_that_stands_still_is_judged(judged: list[int]) -> None:
    made = job()
    decide(made, Looks(made))
    assert judged == [0]


def _bye(made: Any) -> None:
    say(made.members, 0, {"t": "bye", "at": time.monotonic(), "status": 0, "finished": True})


def _closes(made: Any) -> None:
    del made.writers[0]  # its goodbye was not sent, or is not read yet


def _ends(made: Any) -> None:
    made.lives[0].is_over = True  # and nobody has noted it so far


def _gets_on(made: Any) -> None:
    made.members.by_rank[0].steps_told += 1


@pytest.mark.parametrize("happens", [_bye, _closes, _ends, _gets_on])
def test_nothing_is_said_of_a_rank_that_ends_or_gets_on_as_it_is_looked_at(
    happens: Callable[[Any], None], judged: list[int]
) -> None:
    made = job()
    decide(made, Looks(made, lambda: happens(made)))
    assert judged == []


@pytest.mark.parametrize("happens", [_bye, _closes, _ends])
def test_nor_of_another_that_may_have_waited_for_it(
    happens: Callable[[Any], None], judged: list[int]
) -> None:
    made = job()
    decide(made, Looks(made, lambda: happens(made)), rank=1)
    assert judged == []


def test_nor_of_one_that_waits_for_a_rank_which_the_last_look_saw_moving(judged: list[int]) -> None:
    """Rank 0 had just started a helper: nobody can be blamed then, and nobody hangs."""
    made = job()
    looks = Looks(made)
    looks.classes = RankClasses(frozenset([0]), frozenset(), frozenset([1]), frozenset())
    decide(made, looks, rank=1)
    assert judged == []
    assert made.members.by_rank[1].look_again_at > time.monotonic() + 1.0


def test_an_end_from_before_the_looks_keeps_nobody_from_being_judged(judged: list[int]) -> None:
    for happens in (_bye, _closes, _ends):
        made = job()
        happens(made)
        decide(made, Looks(made), rank=1)
    assert judged == [1, 1, 1]


def test_a_rank_that_comes_meanwhile_changes_nothing(judged: list[int]) -> None:
    made = job(world=1)
    looks = Looks(made)
    say(made.members, 1, hello(1))
    made.writers[1], made.lives[1] = None, Life()
    looks._waits[1] = None
    decide(made, looks)
    assert judged == [0]


# ---- ranks that pause ----------------------------------------------------------------------------


@pytest.fixture
def proof(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What proves a hang: nothing, unless a test puts it there."""
    found: list[str] = []

    async def find_later_proof(job: Any, seen: Any) -> str:
        return found[0] if found else ""

    monkeypatch.setattr(inquiry, "find_later_proof", find_later_proof)
    return found


def _pausing(still: float, longest: float, began: float = 60.0) -> Any:
    """A job of which rank 1 has stood still for so long, after silences of up to `longest`. A step
    may take a minute, and five times as long if it is slow.
    """
    made = job(runs_script=False)
    for member in made.members:
        say(made.members, member.rank, {"t": "enter", "n": 3, "at": time.monotonic() - began})
    one = made.members.by_rank[1]
    one.moved_at, one.silences.longest = time.monotonic() - still, longest
    return made


@pytest.mark.parametrize("clock", ["still", "late"])
def test_a_silence_like_those_that_ended_by_themselves_is_slow(
    clock: str, judged: list[int], proof: list[str]
) -> None:
    made = _pausing(still=21.0, longest=17.0)
    decide(made, Looks(made), rank=1, clock=clock)
    assert judged == []
    assert made.said[0].startswith("SLOW")
    assert "stands still, as before: silences of up to 17 s in this step ended" in made.said[0]
    assert made.members.by_rank[1].look_again_at > time.monotonic() + 5.0


def test_nor_is_one_judged_that_may_wait_for_it(judged: list[int], proof: list[str]) -> None:
    made = _pausing(still=21.0, longest=17.0)
    decide(made, Looks(made), rank=0, clock="late")
    assert judged == []
    assert made.members.by_rank[0].look_again_at > time.monotonic() + 5.0


@pytest.mark.parametrize(
    ("still", "longest", "began"), [(21.0, 10.0, 60.0), (35.0, 17.0, 60.0), (21.0, 17.0, 301.0)]
)
def test_a_longer_one_is_judged_and_so_is_one_past_the_limit_of_slow_steps(
    still: float, longest: float, began: float, judged: list[int], proof: list[str]
) -> None:
    made = _pausing(still, longest, began)
    decide(made, Looks(made), rank=1, clock="late")
    assert judged == [1]


def test_so_is_one_of_which_something_proves_that_it_hangs(
    judged: list[int], proof: list[str]
) -> None:
    made = _pausing(still=21.0, longest=17.0)
    proof.append("a process is stopped by a signal")
    decide(made, Looks(made), rank=1)
    assert judged == [1]


def test_a_rank_that_waits_for_another_does_not_pause_by_itself(
    judged: list[int], proof: list[str]
) -> None:
    made = _pausing(still=21.0, longest=17.0)
    looks = Looks(made)
    looks._waits[1] = Wait("collective", "all_reduce")
    decide(made, looks, rank=1)
    assert judged == [1]


# ---- ranks that burn CPU -------------------------------------------------------------------------


class Spins(Looks):
    """Looks at ranks of which each burns CPU in one place; a look with native frames tells of
    those `at_gpu` that they wait for a GPU, so many times.
    """

    def __init__(self, of: Any, at_gpu: set[int], times: int = 9, gpus: bool = True) -> None:
        super().__init__(of)
        self.paused: list[frozenset[int]] = []
        self._at_gpu, self._times = frozenset(at_gpu), times
        self.every = frozenset(of.members.by_rank)
        self.classes = RankClasses(frozenset(), self.every, frozenset(), frozenset())
        for member in of.members:
            one = replace(look(1.0, member.pid), state="R", gpus=("/dev/nvidia0",) * gpus)
            frame = Frame("<module>", "/home/ada/train.py", 8 + member.rank)
            thread = Thread(member.pid, "MainThread", True, False, (frame,))
            member.looks = [replace(one, threads=(thread,))]

    async def look(self, **how: Any) -> None:
        self.paused.append(how.get("native", frozenset()))
        there = self._at_gpu if len(self.paused) <= self._times else frozenset[int]()
        hung = there if there == self.every else frozenset[int]()
        self.classes = RankClasses(frozenset(), self.every - there, there - hung, hung)

    async def read_calls(self, ranks: Any) -> None:
        pass

    def spinning(self) -> frozenset[int]:
        return self.every - self.classes.busy

    def computing(self, member: Any) -> str:
        return "computes (97 % of a core)"


def _late(began: float = 61.0) -> Any:
    """A job of which all ranks are late at a step of a minute."""
    made = job(runs_script=False)
    for member in made.members:
        say(made.members, member.rank, {"t": "enter", "n": 3, "at": time.monotonic() - began})
        member.moved_at = time.monotonic() - began
    return made


def ask(of: Any, looks: Looks, rank: int = 0, asked: Any = None) -> Any:
    """Decide about a late rank by what the looks show so far."""
    server = SimpleNamespace(ask_who_ended=lambda: None)
    asked = asked or inquiry.Inquiry(of, server, lambda: False)  # type: ignore[arg-type]  # what it uses of it
    due = Overdue(rank, "late", time.monotonic())
    asyncio.run(asked._decide(looks, looks.settled(), [due], ""))  # the same
    return asked


def test_who_spins_in_a_wait_for_a_gpu_is_judged_at_the_deadline(
    judged: list[int], proof: list[str]
) -> None:
    made = _late()
    looks = Spins(made, {0, 1})
    ask(made, looks)
    assert judged == [0]
    assert looks.paused == [{0, 1}, {0, 1}]  # once to tell it from work, once for the verdict


def test_who_is_there_at_one_look_and_not_at_the_next_computes(
    judged: list[int], proof: list[str]
) -> None:
    made = _late()
    ask(made, Spins(made, {0, 1}, times=1))
    assert judged == []
    assert "computes" in made.said[0]


def test_where_another_one_computes_it_waits(judged: list[int]) -> None:
    made = _late()
    ask(made, Spins(made, {0}))
    assert judged == []
    assert made.members.by_rank[0].look_again_at > time.monotonic() + 1.0


def test_who_computes_is_slow_as_before_and_paused_once_in_a_place(judged: list[int]) -> None:
    made = _late()
    looks = Spins(made, set())
    asked = ask(made, looks)
    ask(made, looks, asked=asked)
    assert judged == []
    assert len(looks.paused) == 1
    assert "computes" in made.said[0]
    made = _late(301.0)
    ask(made, Spins(made, set()))
    assert judged == [0]


def test_ranks_of_mpirun_that_burn_cpu_are_asked_as_well(judged: list[int]) -> None:
    made = _late()
    made.place = {"launcher": "mpirun"}
    looks = Spins(made, {0, 1}, gpus=False)
    ask(made, looks)
    assert judged == [0]
    assert looks.paused[0] == {0, 1}


def test_nobody_without_a_gpu_is_paused_for_it(judged: list[int]) -> None:
    made = _late()
    looks = Spins(made, {0, 1}, gpus=False)
    ask(made, looks)
    assert (judged, looks.paused) == ([], [])


class SpinsBeside(Spins):
    """Looks at a rank that burns CPU beside one that stands still."""

    async def look(self, **how: Any) -> None:
        self.paused.append(how.get("native", frozenset()))


def test_who_burns_cpu_in_time_is_asked_before_another_one_is_judged(judged: list[int]) -> None:
    """It may wait in MPI for the one that stands still."""
    made = _late()
    made.place = {"launcher": "mpirun"}
    say(made.members, 0, {"t": "enter", "n": 4, "at": time.monotonic()})
    looks = SpinsBeside(made, set(), gpus=False)
    looks.classes = RankClasses(frozenset(), frozenset({0}), frozenset(), frozenset({1}))
    ask(made, looks, rank=1)
    assert judged == [1]
    assert looks.paused == [{0, 1}]
