"""The table as rows of text with colours, as wide as the terminal has room for."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..words import counted, one_line, seconds
from .now import Now, Row

LEAST_COLUMNS = 40
_HEAD = 2  # rows above the first rank's
_MOST_ROWS = 8
_SHARE = 3  # a third of the terminal at most
_STYLES = {"works": "", "trains": "green", "waits": "dim", "ends": "dim", "left": "dim"}


def room(columns: int, lines: int) -> int:
    """Return how many rows a table may have on a terminal of this size; 0: there is no place."""
    most = min(_MOST_ROWS, lines // _SHARE)
    return most if columns >= LEAST_COLUMNS and most > _HEAD else 0


def drawn(now: Now, clock: float, columns: int, most: int) -> list[str]:
    """Return at most `most` rows, each shorter than `columns`; `clock` is monotonic."""
    shown, left_out = _chosen(now.rows, most - _HEAD)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("ranks", no_wrap=True, overflow="ellipsis", max_width=max(9, columns // 5))
    table.add_column("where", no_wrap=True, overflow="ellipsis")
    table.add_column("for", no_wrap=True, justify="right")
    table.add_column("deadline", no_wrap=True, overflow="ellipsis")
    for row in shown:
        style = _STYLES[row.state]
        when, colour = deadline(row, clock, now.stall)
        cells = [(row.ranks, style), (one_line(row.place), style), (_past(row.since, clock), style)]
        table.add_row(*(Text(text, look) for text, look in [*cells, (when, colour or style)]))
    return _lines(_title(now, clock, left_out, columns - 1), table, columns - 1)[:most]


def deadline(row: Row, clock: float, stall: float) -> tuple[str, str]:
    """Return what is said of a row's deadline, and its colour."""
    if row.state in ("waits", "ends", "left"):
        return "", ""
    words, colour = [], ""
    if row.until is not None and clock >= row.until:
        words.append(f"late for {seconds(clock - row.until)}")
        colour = "bold red"
    elif row.until is not None:
        words.append(f"{seconds(row.until - clock)} left")
    if row.moves:
        words.append(f"slow: {one_line(row.moves)}")
        colour = "yellow"
    elif row.still_since is not None:
        still = clock - row.still_since
        words.append(f"quiet for {seconds(still)}")
        colour = colour or ("yellow" if still > stall / 2 else "")
    return "; ".join(words), colour


def _past(since: float, clock: float) -> str:
    return f"{max(clock - since, 0.0):.0f} s"


def _chosen(rows: tuple[Row, ...], most: int) -> tuple[tuple[Row, ...], int]:
    return rows[: max(most, 1)], max(len(rows) - max(most, 1), 0)


def _title(now: Now, clock: float, left_out: int, width: int) -> Text:
    more = f" ({counted(left_out, 'row')} not shown)" if left_out else ""
    text = f"-- hangbisect: {counted(now.ranks, 'rank')}{more}, {_past(now.began, clock)} "
    return Text(text.ljust(width, "-")[:width], "dim")


def _lines(title: Text, table: Table, width: int) -> list[str]:
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=True,
        color_system="standard",
        legacy_windows=False,
        _environ={},  # whether there are colours was decided before we were started
    )
    with console.capture() as captured:
        console.print(title)
        console.print(table)
    return captured.get().rstrip("\n").split("\n")
