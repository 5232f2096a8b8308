"""A job of which no rank speaks, seen from outside: whose movement counts below its ranks."""

from __future__ import annotations

import os
from dataclasses import replace

from hangbisect.base.process_facts import Kernel, Look, Socket, Syscall
from hangbisect.monitor.watcher_verdict import LauncherSnapshot

from ..diagnosis.made_up import look

LAUNCHER, RANK, CHILD, OTHER = 99, 100, 200, 300
NEWS = Socket(8, "tcp", "10.0.0.2:5001", "10.0.0.9:80", "ESTABLISHED", received=0, sent=10)


def looks(pid: int, parent: int, call: str = "", *args: int, reads: bool = False) -> list[Look]:
    """Looks a second apart at a process that stays in one wait."""
    syscall = Syscall(0, call, args, stack=1) if call else None
    made = Look(
        *(0.0, pid, parent, "x", ("x",), 60.0, "S", "proc"),
        kernel=(Kernel(pid, "x", "S", "", syscall),),
        waits=7,
    )
    sockets = [(replace(NEWS, received=at * 50_000),) if reads else () for at in range(4)]
    return [replace(made, at=float(at), age=60.0 + at, sockets=sockets[at]) for at in range(4)]


def snapshot(*of: list[Look]) -> LauncherSnapshot:
    made = LauncherSnapshot(LAUNCHER, expects_words=False)
    made.looks = {one[0].pid: one for one in of}
    made.parents = {one[0].pid: one[0].ppid for one in of}
    made.rank_of = {RANK: 0}
    return made


WAITS = looks(RANK, LAUNCHER, "wait4", CHILD, 0, 0, 0)
AGENT = looks(LAUNCHER, 1, "wait4", RANK, 0, 0, 0)


def test_the_program_that_a_rank_waits_for_counts() -> None:
    works = looks(CHILD, RANK, "read", 3, reads=True)
    assert "receives" in snapshot(AGENT, WAITS, works).moved()


def test_another_program_below_the_rank_does_not() -> None:
    still, other = looks(CHILD, RANK, "read", 3), looks(OTHER, RANK, "read", 3, reads=True)
    assert snapshot(AGENT, WAITS, still, other).moved() == ""
    polls = looks(RANK, LAUNCHER, "futex", 1)
    assert "receives" in snapshot(AGENT, polls, still, other).moved()


def test_what_is_below_the_launcher_and_no_rank_counts() -> None:
    other = looks(OTHER, LAUNCHER, "read", 3, reads=True)
    assert "receives" in snapshot(AGENT, WAITS, other).moved()


_ELASTIC = "SP/torch/distributed/elastic"


def asks(at: float, *innermost: str, meets: bool = True) -> Look:
    """A look at an agent that asks who has come, in code that no look before has shown."""
    meeting = f"SimpleElasticAgent._rendezvous {_ELASTIC}/agent/server/api.py:528"
    frames = [*innermost, *([meeting] if meets else []), "main train.py:31"]
    made = look(*frames, call="clock_nanosleep")
    return replace(made, pid=RANK, ppid=LAUNCHER, at=at, age=60.0 + at)


def test_an_agent_that_asks_again_and_again_who_has_come_moves_nothing_on() -> None:
    places = ("_delay a.py:1", "getmodule b.py:2", "realpath c.py:3")
    for meets in (True, False):
        seen = snapshot([asks(at, one, meets=meets) for at, one in enumerate(places)])
        assert bool(seen.moved()) is not meets
        assert bool(seen.describe_node_wait()) is meets


def test_a_program_in_which_an_agent_runs_is_a_launcher_and_no_rank() -> None:
    made = LauncherSnapshot(os.getpid(), expects_words=False)
    made.find()
    assert made.rank_of == {os.getpid(): 0}
    made.looks = {os.getpid(): [asks(1.0, "_delay a.py:1")]}
    made.find()
    assert made.rank_of == {}
