"""The process that draws the table: it alone writes it, and it may be abandoned, or killed.

It reads what to show as lines on its stdin, and ends with that, the table taken away. It opens the
terminal for itself, so that its own writes never wait and those of others are as before: a
terminal that was stopped (Ctrl-S) takes nothing, and then nothing is drawn.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Sequence

from ...base.columns import Column, in_columns, styled
from ...base.words import format_count, format_seconds, join_lines
from . import screen
from .rank_rows import LiveRow, RankTable, table_from_json
from .screen import TerminalOwner, find_owner, is_line_by_line

CHECK_EVERY = 0.2  # seconds between two questions whether the terminal is still ours
DRAW_EVERY = 1.0
LAST_TRIES = 600.0  # seconds for a terminal that was stopped to go on, and be left clean
_POLITE = 10  # nice(2): the ranks come first


def run(ranks: Sequence[int], launcher: int) -> None:
    """Draw on the terminal that is our stderr, for the job of these processes, until stdin ends."""
    os.nice(_POLITE)
    try:
        fd = os.open("/proc/self/fd/2", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:  # it belongs to another user (su)
        return
    device = os.fstat(fd).st_rdev
    ours = find_owner(ranks, launcher, device)
    if ours is not None:
        Drawer(fd, device, ours).run()


class Drawer:
    """The table of one job on one terminal."""

    def __init__(self, fd: int, device: int, job: TerminalOwner) -> None:
        """`fd` is the terminal `device`, opened not to wait."""
        self._fd, self._device, self._job = fd, device, job
        self._turn: socket.socket | None = None
        self._now: RankTable | None = None
        self._rest = b""
        self._size = os.terminal_size((0, 0))
        self._height = 0  # of the table that stands there
        self._cut = False  # the terminal took a write in part

    def run(self) -> None:
        """Show what stdin says, and leave the terminal clean once it ends."""
        drawn_at = 0.0
        while True:
            ready = select.select([0], [], [], CHECK_EVERY)[0]
            if ready and not self._read():
                break
            try:
                clock = time.monotonic()
                if not self._may_draw():
                    self._withdraw()
                elif ready or clock > drawn_at + DRAW_EVERY or not self._height:
                    drawn_at = clock
                    self._draw(clock)
            except OSError:  # the terminal is gone
                return
        self._leave()

    def _read(self) -> bool:
        data = os.read(0, 1 << 20)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                self._now = table_from_json(lines[-1].decode())
        return bool(data)

    # ---- on the terminal -----------------------------------------------------------------------

    def _may_draw(self) -> bool:
        size = os.get_terminal_size(self._fd)
        if size != self._size and self._height and self._write(screen.clear_lost_table()):
            self._height = 0
        if not self._height:
            self._size = size
        watched = self._now is not None and bool(self._now.rows)
        free = self._job.is_in_front() and is_line_by_line(self._fd)
        return (
            watched
            and free
            and size == self._size
            and bool(rows_that_fit(*size))
            and self._has_turn()
        )

    def _draw(self, clock: float) -> None:
        assert self._now is not None
        rows = render_table(self._now, clock, self._size.columns, rows_that_fit(*self._size))
        height = max(len(rows), self._height)
        text = screen.draw_rows(rows, self._size.lines, height)
        if height != self._height:
            before = screen.clear_rows(self._size.lines, self._height) if self._height else ""
            text = before + screen.reserve_rows(self._size.lines, height) + text
        if self._write(text):
            self._height = height

    def _withdraw(self) -> bool:
        if self._height and self._write(screen.clear_rows(self._size.lines, self._height)):
            self._height = 0
        return not self._height

    def _leave(self) -> None:
        until = time.monotonic() + LAST_TRIES
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        with contextlib.suppress(OSError):
            while not self._withdraw() and time.monotonic() < until:
                poll.poll(1000)

    def _write(self, text: str) -> bool:
        """Write all of it, or return False. Others write whole lines in between: what is one write
        is not torn (tty_io.c), unless the terminal has no room for all of it.
        """
        data = text.encode(errors="replace")
        if self._cut:
            data = screen.UNFINISHED.encode() + data
        try:
            written = os.write(self._fd, data)
        except BlockingIOError:
            return False
        self._cut = written < len(data)
        return not self._cut

    def _has_turn(self) -> bool:
        """Return whether this job draws: of two on one terminal only the first does. The turn is a
        name in the abstract socket namespace (unix(7)), which is gone with its process.
        """
        if self._turn is None:
            turn = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                turn.bind(f"\0hangbisect-table-{os.getuid()}-{self._device}")
            except OSError:
                turn.close()
                return False
            self._turn = turn
        return True


LEAST_COLUMNS = 40
_HEAD = 2  # rows above the first rank's
_MOST_ROWS = 8
_SHARE = 3  # a third of the terminal at most
_STYLES = {"works": "", "trains": "green", "waits": "dim", "ends": "dim", "left": "dim"}


def rows_that_fit(columns: int, lines: int) -> int:
    """Return how many rows a table may have on a terminal of this size; 0: there is no place."""
    most = min(_MOST_ROWS, lines // _SHARE)
    return most if columns >= LEAST_COLUMNS and most > _HEAD else 0


def render_table(now: RankTable, clock: float, columns: int, most: int) -> list[str]:
    """Return at most `most` rows, each shorter than `columns`; `clock` is monotonic."""
    shown, left_out = _choose_rows(now.rows, most - _HEAD)
    table = (
        Column("ranks", most=max(9, columns // 5)),
        Column("where"),
        Column("for", right=True, is_whole=True),
        Column("deadline"),
    )
    rows = [_style_cells(row, clock, now.stall) for row in shown]
    title = styled(_title(now, clock, left_out, columns - 1), "dim")
    return [title, *in_columns(table, rows, columns - 1, head="dim")][:most]


def _style_cells(row: LiveRow, clock: float, stall: float) -> list[tuple[str, str]]:
    style = _STYLES[row.state]
    when, colour = format_deadline(row, clock, stall)
    words = (row.ranks, join_lines(row.place), _format_past(row.since, clock))
    return [*((text, style) for text in words), (when, colour or style)]


def format_deadline(row: LiveRow, clock: float, stall: float) -> tuple[str, str]:
    """Return what is said of a row's deadline, and its colour."""
    if row.state in ("waits", "ends", "left"):
        return "", ""
    words, colour = [], ""
    if row.until is not None and clock >= row.until:
        words.append(f"late for {format_seconds(clock - row.until)}")
        colour = "bold red"
    elif row.until is not None:
        words.append(f"{format_seconds(row.until - clock)} left")
    if row.moves:
        words.append(f"slow: {join_lines(row.moves)}")
        colour = "yellow"
    elif row.still_since is not None:
        still = clock - row.still_since
        words.append(f"quiet for {format_seconds(still)}")
        colour = colour or ("yellow" if still > stall / 2 else "")
    return "; ".join(words), colour


def _format_past(since: float, clock: float) -> str:
    return f"{max(clock - since, 0.0):.0f} s"


def _choose_rows(rows: tuple[LiveRow, ...], most: int) -> tuple[tuple[LiveRow, ...], int]:
    return rows[: max(most, 1)], max(len(rows) - max(most, 1), 0)


def _title(now: RankTable, clock: float, left_out: int, width: int) -> str:
    more = f" ({format_count(left_out, 'row')} not shown)" if left_out else ""
    text = (
        f"-- hangbisect: {format_count(now.ranks, 'rank')}{more}, {_format_past(now.began, clock)} "
    )
    return text.ljust(width, "-")[:width]
