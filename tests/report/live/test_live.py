"""The rows of the live table, and how they fit on any terminal."""

from __future__ import annotations

import re
from typing import Any

import pyte
import pytest
from hangbisect.base.rank_state import TableState
from hangbisect.report import live_table as region
from hangbisect.report.live_table import (
    LEAST_COLUMNS,
    LiveRow,
    RankNow,
    RankTable,
    format_deadline,
    group_ranks,
    render_table,
    rows_that_fit,
    table_from_json,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from ...examples import examples

STATES: tuple[TableState, ...] = ("works", "trains", "waits", "ends", "left")


def rank(
    number: int,
    state: TableState = "works",
    place: str = "9 WandbLogger ready",
    since: float = 100.0,
    until: float = 160.0,
) -> RankNow:
    return RankNow(number, state, place, 9, since, until)


def row(state: TableState = "works", **more: object) -> LiveRow:
    given: dict[str, Any] = {"since": 100.0, "until": 160.0, "still_since": None, "moves": ""}
    given |= {"ranks": "0", "state": state, "place": "9 WandbLogger ready", **more}
    return LiveRow(**given)


def plain(lines: list[str]) -> list[str]:
    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in lines]


def test_ranks_in_the_same_place_are_one_row_with_the_longest_wait_and_the_first_deadline() -> None:
    ranks = [rank(0), rank(1, since=90.0, until=150.0), rank(2, "waits", "waits for ranks 0-1")]
    working, waiting = group_ranks(ranks)
    assert (working.ranks, working.since, working.until) == ("0-1", 90.0, 150.0)
    assert (waiting.ranks, waiting.state) == ("2", "waits")


def test_those_that_others_wait_for_come_first_the_least_far_before_all() -> None:
    far = RankNow(0, "works", "10 MemoryLoggingCallback ready", 10, 100.0)
    rows = group_ranks([rank(3, "waits", "waits"), far, rank(1), rank(2, "left", "has ended")])
    assert [one.ranks for one in rows] == ["1", "0", "3", "2"]


def test_a_thousand_ranks_in_two_places_are_two_rows() -> None:
    rows = group_ranks([rank(0), *(rank(n, "waits", "waits for rank 0") for n in range(1, 1024))])
    now = RankTable(rows, 1024, 40.0, 20.0)
    lines = plain(render_table(now, 112.0, 80, 8))
    assert lines[0].startswith("-- hangbisect: 1024 ranks, 72 s ---")
    assert [line.split("  ")[0] for line in lines[2:]] == ["0", "1-1023"]
    assert lines[2].endswith("12 s  48 s left")


@given(st.lists(st.builds(rank, st.integers(0, 99), st.sampled_from(STATES)), max_size=9))
def test_what_the_monitor_writes_the_drawer_reads(ranks: list[RankNow]) -> None:
    now = RankTable(group_ranks(ranks), 9, 1.0, 20.0)
    assert "\n" not in now.as_json()
    assert table_from_json(now.as_json()) == now


@pytest.mark.parametrize("line", ["", "{", "[]", "3", '{"rows": [3]}', '{"rows": [], "x": 1}'])
def test_what_is_no_news_raises_what_the_drawer_expects(line: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        table_from_json(line)


def test_a_deadline_counts_down_and_then_up() -> None:
    assert format_deadline(row(), 112.0, 20.0) == ("48 s left", "")
    assert format_deadline(row(), 165.0, 20.0) == ("late for 5.0 s", "bold red")
    quiet = row(still_since=100.0)
    assert format_deadline(quiet, 112.0, 20.0) == ("48 s left; quiet for 12 s", "yellow")
    slow = row(still_since=100.0, moves="reads model.safetensors at 41 MiB/s")
    assert (
        format_deadline(slow, 165.0, 20.0)[0]
        == "late for 5.0 s; slow: reads model.safetensors at 41 MiB/s"
    )
    assert format_deadline(row("waits"), 165.0, 20.0) == ("", "")
    assert format_deadline(row(until=None), 165.0, 20.0) == ("", "")


@given(
    st.lists(st.text(max_size=60), max_size=12),
    st.integers(LEAST_COLUMNS, 200),
    st.integers(9, 60),
    st.floats(0, 1e6),
)
def test_on_every_terminal_the_rows_are_shorter_than_its_lines(
    places: list[str], columns: int, lines: int, clock: float
) -> None:
    rows = group_ranks([rank(n, place=place) for n, place in enumerate(places)])
    most = rows_that_fit(columns, lines)
    assert 0 < most <= lines // 3
    shown = render_table(RankTable(rows, len(places), 0.0, 20.0), clock, columns, most)
    assert len(shown) <= most
    screen = pyte.Screen(columns, lines)
    pyte.Stream(screen).feed("\r\n".join(shown))
    assert screen.cursor.y == len(shown) - 1  # none was wrapped
    assert "\x1b" not in "".join(plain(shown))


def test_a_terminal_that_is_too_small_has_no_table() -> None:
    assert rows_that_fit(LEAST_COLUMNS - 1, 24) == 0
    assert rows_that_fit(80, 8) == 0
    assert rows_that_fit(80, 24) == 8


@settings(max_examples=examples(40))
@given(st.integers(1, 24), st.integers(1, 8), st.integers(0, 30), st.data())
def test_what_stands_there_scrolls_up_and_nothing_is_lost(
    lines_before: int, height: int, lines_after: int, data: st.DataObject
) -> None:
    text = data.draw(st.sampled_from(["", "half a line"]))
    screen = pyte.HistoryScreen(80, 24, history=200)
    stream = pyte.Stream(screen)
    said = [f"before {n}" for n in range(lines_before)]
    stream.feed("".join(f"{line}\r\n" for line in said) + text)
    stream.feed(region.reserve_rows(24, height) + region.draw_rows(["row"] * height, 24, height))
    more = [f"after {n}" for n in range(lines_after)]
    stream.feed("".join(f"{line}\r\n" for line in more))
    assert [line.rstrip() for line in screen.display[-height:]] == ["row"] * height
    stream.feed(region.clear_rows(24, height))
    top = ["".join(line[x].data for x in range(80)).rstrip() for line in screen.history.top]
    shown = [*top, *(line.rstrip() for line in screen.display)]
    while shown and not shown[-1]:
        shown.pop()
    first = [text + more[0]] if more else [text] * bool(text)
    assert shown == [*said, *first, *more[1:]]
    assert screen.margins in (None, (0, 23))
