"""What the monitor tells of its ranks, and when there is a table at all."""

from __future__ import annotations

import os

import pytest
from hangbisect.base.rank_state import NodeRanks
from hangbisect.link.messages import TableRow
from hangbisect.monitor.child_processes import is_table_wanted
from hangbisect.monitor.clocks import TimeLimits
from hangbisect.monitor.live_rows import give_rows, locate_rank, take_rows
from hangbisect.report.live_table import RankNow

from .made_up import at_step, say, told

SETTINGS = {"plain": False, "json": False, "on_terminal": True}
TERMINAL = {"TERM": "xterm-256color"}


@pytest.fixture(autouse=True)
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda fd: True)


def test_on_a_terminal_there_is_a_table() -> None:
    assert is_table_wanted(SETTINGS, TERMINAL)


@pytest.mark.parametrize(
    ("settings", "environ"),
    [
        ({"plain": True}, {}),
        ({"json": True}, {}),
        ({"on_terminal": False}, {}),  # the ranks' lines go into a pipe
        ({}, {"NO_COLOR": "1"}),
        ({}, {"TERM": "dumb"}),
        ({}, {"TERM": ""}),
        ({}, {"CI": "true"}),
        ({}, {"JPY_PARENT_PID": "4711"}),  # `!torchrun ...` in a notebook
    ],
)
def test_there_is_none_where_something_says_so(
    settings: dict[str, bool], environ: dict[str, str]
) -> None:
    assert not is_table_wanted({**SETTINGS, **settings}, {**TERMINAL, **environ})


def test_there_is_none_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda fd: False)
    assert not is_table_wanted(SETTINGS, TERMINAL)


def now(members: NodeRanks, rank: int = 0, clock: float = 12.0, **limits: float) -> RankNow:
    return locate_rank(members, members.by_rank[rank], TimeLimits(limits), clock)


def test_a_rank_at_work_has_its_step_and_its_deadline() -> None:
    members = at_step(3, at=10.0)
    one = now(members)
    assert (one.state, one.place, one.since, one.until) == (
        "works",
        "3 WandbLogger ready",
        10.0,
        70.0,
    )
    assert now(members, wandb_logger=5.0).until == 15.0
    assert one.still_since is None
    assert now(members, clock=20.0).still_since == 10.0


def test_in_training_the_phase_is_told_and_what_is_never_late_has_no_deadline() -> None:
    members = told(
        (0, "enter", 10.0, {"n": 4}),
        (0, "phase", 11.0, {"n": 4, "name": "process_group"}),
        (1, "enter", 10.0, {"n": 4}),
        (1, "phase", 12.0, {"n": 4, "name": "steady"}),
    )
    assert now(members).place == "4 Training finished: process group"
    assert now(members).until == 131.0
    assert now(members, 1).until is None


def test_who_waits_says_for_whom_and_who_is_gone_is_gone() -> None:
    members = told((0, "reached", 5.0, {"n": 2}), (0, "arrive", 5.5, {"n": 2}))
    waits = now(members)
    assert (waits.state, waits.place, waits.since) == ("waits", "waits for rank 1", 5.5)
    say(members, 1, {"t": "finished", "at": 6.0})
    assert (now(members, 1).state, now(members, 1).place) == ("ends", "ends")
    say(members, 1, {"t": "bye", "at": 7.0, "status": 0, "finished": True})
    assert (now(members, 1).state, now(members, 1).place) == ("left", "has ended")


def test_what_a_node_tells_of_its_rows_comes_on_the_clock_of_who_shows_them() -> None:
    at_work = RankNow(0, "works", "4 Tokenizer loaded", 4, 105.0, until=130.0, still_since=108.0)
    others = [RankNow(one, "waits", "waits for rank 0", 3, 107.0) for one in (1, 2)]
    told = give_rows([at_work, *others], clock=110.0)
    assert told == (
        TableRow((0,), "works", "4 Tokenizer loaded", 4, since=5.0, left=20.0, still=2.0),
        TableRow((1, 2), "waits", "waits for rank 0", 3, since=3.0),
    )
    assert take_rows(told, clock=9_010.0) == [
        RankNow(0, "works", "4 Tokenizer loaded", 4, 9_005.0, until=9_030.0, still_since=9_008.0),
        *(RankNow(one, "waits", "waits for rank 0", 3, 9_007.0) for one in (1, 2)),
    ]
