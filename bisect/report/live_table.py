"""The table of ranks below the lines while a job runs, in the last rows of its terminal.

The ranks write to the terminal themselves, from many processes, and so do the programs that they
start. So no process passes their output on: the terminal itself is told to scroll above the
table, and one process, the drawer, writes the rows below. What holds up the drawer holds up no
other process: it may be abandoned, or killed.

The drawer reads what to show as lines of JSON on its stdin (ranks grouped into rows, from the
monitor), and ends with that, the table taken away. It opens the terminal for itself, so that its
own writes never wait and those of others are as before: a terminal that was stopped (Ctrl-S) takes
nothing, and then nothing is drawn. Whether a table may be drawn is read from the kernel.

Control sequences are of ECMA-48 and DEC's VT100, as xterm's ctlseqs.html has them; every one leaves
the cursor where it was, and is to be written at once. While others write to the same terminal, the
margins (DECSTBM) keep their line feeds off the table: the last row that scrolls is the one above.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import termios
import time
from collections.abc import Iterable, Sequence

from ..base.columns import Column, in_columns, styled
from ..base.json_codec import from_json, to_json
from ..base.lazy_dataclass import dataclass
from ..base.proc import read_stat
from ..base.rank_state import TableState
from ..base.words import format_count, format_rank_numbers, format_seconds, join_lines

_SAVE, _RESTORE = "\x1b7", "\x1b8"  # DECSC, DECRC: the cursor, its colours, and its margin's flag
_WHOLE = "\x1b[r"  # DECSTBM: the whole screen scrolls
_INDEX = "\x1bD"  # IND: a line down in the same column, scrolling at the last
_CANCEL = "\x18"  # CAN: forget a sequence that was cut
UNFINISHED = _CANCEL + _RESTORE  # before what follows one of these that was written in part


def reserve_rows(lines: int, height: int) -> str:
    """Return what makes room for a table of `height` rows at the end of `lines`, below the cursor.

    The cursor goes down and up again: what stands in the last rows scrolls up, and where there is
    nothing nothing moves.
    """
    room = f"{_INDEX * height}\x1b[{height}A"
    return f"{_SAVE}{_WHOLE}{_RESTORE}{room}{_SAVE}\x1b[1;{lines - height}r{_RESTORE}"


def draw_rows(rows: Sequence[str], lines: int, height: int) -> str:
    """Return what draws `rows` from the first of the `height` reserved ones on. The margins are set
    again, because a program may have reset them (`clear`, `reset`).
    """
    shown = [*rows, *[""] * (height - len(rows))][:height]
    first = lines - height + 1
    drawn = "".join(f"\x1b[{first + i};1H\x1b[0m{row}\x1b[0m\x1b[K" for i, row in enumerate(shown))
    return f"{_SAVE}\x1b[1;{lines - height}r{drawn}{_RESTORE}"


def clear_rows(lines: int, height: int) -> str:
    """Return what removes the table: the last `height` of `lines` are empty, all lines scroll."""
    first = lines - height + 1
    return f"{_SAVE}{_WHOLE}\x1b[0m\x1b[{first};1H\x1b[J{_RESTORE}"


def clear_lost_table() -> str:
    """Return what removes a table whose place is not known any more: the terminal has got
    another size, or its drawer was killed. It was below the cursor.
    """
    return f"{_CANCEL}{_SAVE}{_WHOLE}{_RESTORE}\x1b[J"


_STOPPED = "TtZX"


@dataclass(frozen=True)
class TerminalOwner:
    """The process that stands for the job on its terminal."""

    pid: int

    def is_in_front(self) -> bool:
        """Return whether the terminal is the job's: not that of a shell to which the job was
        stopped (Ctrl-Z), put in the background, or ended.
        """
        found = read_stat(self.pid)
        return found is not None and found.state not in _STOPPED and found.group == found.foreground


def find_owner(ranks: Sequence[int], launcher: int, terminal: int) -> TerminalOwner | None:
    """Return what stands for a job on the device `terminal` (st_rdev), None if nothing does.

    That is its launcher: torchrun's workers lead sessions of their own, without a terminal. A rank
    where it was started by a shell, which is in front when the job is not. mpirun gives its ranks
    terminals that no person sees.
    """
    here = {
        pid: found
        for pid in (launcher, *ranks)
        if (found := read_stat(pid)) is not None and _terminal_device(found.terminal) == terminal
    }
    groups = {here[pid].group for pid in ranks if pid in here}
    if launcher in here and (not groups or here[launcher].group in groups):
        return TerminalOwner(launcher)
    return next((TerminalOwner(pid) for pid in ranks if pid in here), None)


def is_line_by_line(fd: int) -> bool:
    """Return whether no program reads single keys (a debugger's prompt, `less`, an editor): such a
    one draws on the whole screen itself.
    """
    try:
        return bool(termios.tcgetattr(fd)[3] & termios.ICANON)
    except (termios.error, OSError):
        return False


def _terminal_device(number: int) -> int:
    """Return a device of /proc/PID/stat as st_rdev has it: its minor number is in bits 31 to 20 and
    7 to 0, the major one in 15 to 8 (proc(5)).
    """
    return os.makedev(number >> 8 & 0xFFF, number >> 20 << 8 | number & 0xFF)


_ORDER: tuple[TableState, ...] = ("works", "trains", "waits", "ends", "left")
RUNS_SHOWN = 4  # of ranks, in a row: "0-3,8-11,16,... and 40 more"


@dataclass(frozen=True)
class RankNow:
    """One rank. Times are monotonic, the same clock for all processes of a machine."""

    rank: int
    state: TableState
    place: str  # "9 WandbLogger ready"
    number: int  # of the step that it is in, to order by
    since: float  # it is there
    until: float | None = None  # its deadline; None: it is never late
    still_since: float | None = None  # nothing of it has moved; None: something has, just now
    moves: str = ""  # what moved when it was last looked at, in words


@dataclass(frozen=True)
class LiveRow:
    """Ranks in the same place: the longest wait and the first deadline among them."""

    ranks: str
    state: TableState
    place: str
    since: float
    until: float | None
    still_since: float | None
    moves: str


@dataclass(frozen=True)
class RankTable:
    """What the table shows. No rows: nothing is watched at the moment, and nothing is shown."""

    rows: tuple[LiveRow, ...]
    ranks: int
    began: float  # monotonic
    stall: float  # seconds without movement after which the watch looks
    hosts: int = 1  # on which they are

    def as_json(self) -> str:
        """Return it on one line."""
        return json.dumps(to_json(self), ensure_ascii=False)


def table_from_json(line: str) -> RankTable:
    """Return what as_json() wrote. Raises ValueError for anything else."""
    return from_json(RankTable, json.loads(line))


def group_ranks(ranks: Iterable[RankNow]) -> tuple[LiveRow, ...]:
    """Return a row for each place: first those that others wait for, the least far before all."""
    places: dict[tuple[int, int, str], list[RankNow]] = {}
    for one in ranks:
        places.setdefault((_ORDER.index(one.state), one.number, one.place), []).append(one)
    return tuple(_group_row(group) for _, group in sorted(places.items()))


def _group_row(group: list[RankNow]) -> LiveRow:
    still = [one.still_since for one in group if one.still_since is not None]
    return LiveRow(
        ranks=format_rank_numbers((one.rank for one in group), RUNS_SHOWN),
        state=group[0].state,
        place=group[0].place,
        since=min(one.since for one in group),
        until=min((one.until for one in group if one.until is not None), default=None),
        still_since=min(still, default=None),
        moves=next((one.moves for one in group if one.moves), ""),
    )


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
            if ready and not self._read_table():
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

    def _read_table(self) -> bool:
        data = os.read(0, 1 << 20)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                self._now = table_from_json(lines[-1].decode())
        return bool(data)

    # ---- on the terminal -----------------------------------------------------------------------

    def _may_draw(self) -> bool:
        size = os.get_terminal_size(self._fd)
        if size != self._size and self._height and self._write(clear_lost_table()):
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
        text = draw_rows(rows, self._size.lines, height)
        if height != self._height:
            before = clear_rows(self._size.lines, self._height) if self._height else ""
            text = before + reserve_rows(self._size.lines, height) + text
        if self._write(text):
            self._height = height

    def _withdraw(self) -> bool:
        if self._height and self._write(clear_rows(self._size.lines, self._height)):
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
            data = UNFINISHED.encode() + data
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
    ranks = format_count(now.ranks, "rank") + (f" on {now.hosts} hosts" if now.hosts > 1 else "")
    text = f"-- hangbisect: {ranks}{more}, {_format_past(now.began, clock)} "
    return text.ljust(width, "-")[:width]
