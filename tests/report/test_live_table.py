"""A matrix while it runs: what is shown on any terminal, and what is said without one."""

from __future__ import annotations

import io
import os
import time
from dataclasses import replace

import pyte
from hangbisect.report.matrix_text import (
    LiveLines,
    LiveTable,
    choose_cells,
    describe_ranks,
    draw_table,
    progress_line,
)
from hangbisect.search.cells import CellState, RankPosition
from hypothesis import given
from hypothesis import strategies as st

from ..trials.made_up_matrix import CELLS, ran


def at(rank: int, since: float, *, checkpoint: int = 9, waits: bool = False) -> RankPosition:
    return RankPosition(rank, checkpoint, "WandbLogger ready", None, since, waits)


def cells(*states: str) -> list[CellState]:
    """Return a cell for each letter: e(nded), r(uns), w(aits)."""
    found = []
    for number, state in enumerate(states, 1):
        cell = replace(CELLS[0], number=number, name=f"cell {number}")
        ended = replace(ran(1, "ok"), number=number) if state == "e" else None
        runs = (at(0, time.monotonic()),) if state == "r" else ()
        found.append(CellState(cell, ended, runs, 3.0 if state == "r" else None))
    return found


def test_ranks_in_the_same_place_are_told_together() -> None:
    ranks = [at(0, 95.0), at(1, 98.0, waits=True), at(2, 99.0, waits=True)]
    assert describe_ranks(ranks, 100.0) == "0: 9 WandbLogger ready 5 s; 1-2: waits 2 s"
    assert describe_ranks([], 100.0) == "starts"
    assert describe_ranks([RankPosition(0, 13, "", None, 99.0)], 100.0) == "0: ends 1 s"


@given(st.text(alphabet="erw", min_size=1, max_size=60), st.integers(1, 70))
def test_what_is_shown_is_never_more_than_there_is_room_for_and_in_order(
    states: str, room: int
) -> None:
    everything = cells(*states)
    shown, above, below = choose_cells(everything, room)
    assert len(shown) == min(room, len(everything))
    assert above + len(shown) + below == len(everything)
    assert shown == everything[above : above + len(shown)]


def test_a_cell_that_runs_is_shown_however_many_are_done() -> None:
    everything = cells(*"e" * 30, "r", *"w" * 30)
    shown, _, _ = choose_cells(everything, 9)
    assert everything[30] in shown


@given(st.text(alphabet="erw", min_size=1, max_size=40), st.integers(20, 200), st.integers(4, 60))
def test_no_terminal_is_too_small(states: str, width: int, height: int) -> None:
    rows = draw_table(cells(*states), 60.0, "", os.terminal_size((width, height)))
    assert len(rows) <= max(height - 1, 6)
    screen = pyte.Screen(width, max(height, 8))
    pyte.Stream(screen).feed("\r\n".join(rows))
    assert screen.cursor.y == len(rows) - 1  # none was wrapped


def test_the_last_line_counts_and_estimates() -> None:
    assert (
        progress_line(cells("e", "r", "w"), 250.0, "")
        == "1 of 3 cells done: 1 ok; about 250 s left"
    )
    assert progress_line(cells("w"), None, "") == "0 of 1 cell done"


def test_a_table_stands_in_place_of_the_last_and_is_taken_away() -> None:
    stream, screen = io.StringIO(), pyte.Screen(80, 24)
    live = LiveTable(stream)
    live.show(cells("e", "r", "w", "w"), None, "")
    live.show(cells("e", "r"), None, "a note")
    terminal = pyte.Stream(screen)
    terminal.feed("before\r\n" + stream.getvalue().replace("\n", "\r\n"))
    shown = [line.rstrip() for line in screen.display if line.strip()]
    assert [line.split()[0] for line in shown] == ["before", "#", "1", "2", "1"]
    assert shown[-1] == "1 of 2 cells done: 1 ok; a note"
    live.close()
    terminal.feed("\x1b[H" + "before\r\n" + stream.getvalue().replace("\n", "\r\n"))
    assert "".join(screen.display).strip() == "before"
    assert "\x1b[?25l" not in stream.getvalue()


def test_lines_tell_each_thing_once_and_a_long_cell_now_and_then() -> None:
    stream, clock = io.StringIO(), [100.0]
    lines = LiveLines(stream, lambda: clock[0])
    lines.show(cells("e", "r", "w"), None, "")
    lines.show(cells("e", "r", "w"), None, "")
    clock[0] += 31
    lines.show(cells("e", "r", "w"), None, "")
    lines.show(cells("e", "e", "r"), 20.0, "")
    said = [line.partition("] ")[2] for line in stream.getvalue().splitlines()]
    assert said[:2] == ["1 cell done before", "2/3 cell 2: started"]
    assert said[2].startswith("2/3 cell 2: 3.0 s, 0: 9 WandbLogger ready ")
    assert said[3:] == ["2/3 cell 2: ok, 12 s; about 20 s left", "3/3 cell 3: started"]
