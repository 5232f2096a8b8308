"""A matrix while it runs: a table that is drawn again and again, or lines without a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from .words import counted, one_line, ranges, seconds

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from ..bisection.ran import Ran
    from ..trials.launched import RankAt
    from ..trials.matrix import CellNow

_OTHER_LINES = 5  # of the table: its head, what is left out above and below, and the last line
_SPOKEN = 30.0  # seconds between two lines on a cell that goes on
_STYLES = {"ok": "green", "slow": "yellow", "hang": "bold red", "crash": "red"}


class LiveTable:
    """On a terminal."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def show(self, cells: Sequence[CellNow], left: float | None, note: str) -> None:
        """Draw how things are; `left`: seconds for the rest."""
        self._live.update(drawn(cells, left, note, self._console), refresh=True)

    def close(self) -> None:
        """Take the table away, and give the cursor back."""
        self._live.stop()


class Lines:
    """Anywhere else: a line when something begins or ends, and now and then in between."""

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now = now
        self._begun = False
        self._said: dict[int, float] = {}  # when something was last said of a cell
        self._ended: set[int] = set()
        self._note = ""

    def show(self, cells: Sequence[CellNow], left: float | None, note: str) -> None:
        """Say what is new."""
        if not self._begun:
            self._done_before(cells)
        for one in cells:
            name = f"{one.cell.number}/{len(cells)} {one.cell.name}"
            if one.ran is not None:
                self._ending(name, one.ran, left)
            elif one.seconds is not None:
                self._going_on(name, one, one.seconds)
        if note and note != self._note:
            self._note = note
            self._say(note)

    def close(self) -> None:
        """Nothing is left to say."""

    def _done_before(self, cells: Sequence[CellNow]) -> None:
        """What an interrupted matrix left is no news."""
        self._begun = True
        self._ended = {one.cell.number for one in cells if one.ran is not None}
        if self._ended:
            self._say(f"{counted(len(self._ended), 'cell')} done before")

    def _ending(self, name: str, ran: Ran, left: float | None) -> None:
        if ran.number not in self._ended:
            self._ended.add(ran.number)
            came = f"{ran.result}: {ran.where}" if ran.where else ran.result
            about = f"; about {seconds(left)} left" if left else ""
            self._say(f"{name}: {came}, {seconds(ran.seconds)}{about}")

    def _going_on(self, name: str, one: CellNow, had: float) -> None:
        now, said = self._now(), self._said.get(one.cell.number)
        if said is None:
            self._say(f"{name}: started")
        elif now - said >= _SPOKEN:
            self._say(f"{name}: {seconds(had)}, {where(one.ranks, now)}")
        else:
            return
        self._said[one.cell.number] = now

    def _say(self, text: str) -> None:
        print(f"[{time.strftime('%H:%M:%S')}] {one_line(text)}", file=self._stream, flush=True)


# ---- the parts -----------------------------------------------------------------------------------


def where(ranks: Iterable[RankAt], now: float) -> str:
    """Return where each rank is: "0: 9 WandbLogger ready 12 s; 1-7: wait"."""
    groups: dict[str, list[RankAt]] = {}
    for one in ranks:
        groups.setdefault(_place(one), []).append(one)
    parts = [
        f"{ranges(one.rank for one in group)}: {place} {_since(group, now)}"
        for place, group in groups.items()
    ]
    return "; ".join(parts) or "starts"


def _place(one: RankAt) -> str:
    if one.waits:
        return "waits"
    name = one.phase or one.title
    if one.checkpoint is None:
        return name or "runs"
    return f"{one.checkpoint} {name}" if name else "ends"  # past the last checkpoint


def _since(group: Sequence[RankAt], now: float) -> str:
    return f"{max(now - one.since for one in group):.0f} s"


def drawn(
    cells: Sequence[CellNow], left: float | None, note: str, console: Console
) -> RenderableType:
    """Return the table as a terminal of this size can show it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    def line(words: str, style: str) -> Text:
        return Text(words, style, overflow="ellipsis", no_wrap=True)

    shown, above, below = chosen(cells, max(console.size.height - _OTHER_LINES, 1))
    table = Table(box=None, padding=(0, 1), expand=True, pad_edge=False)
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("cell", no_wrap=True, overflow="ellipsis", max_width=console.size.width // 3)
    table.add_column("", no_wrap=True)
    table.add_column("s", justify="right", no_wrap=True)
    table.add_column("where", no_wrap=True, overflow="ellipsis", ratio=1)
    for one in shown:
        table.add_row(*(Text(text, style) for text, style in _cells_of(one)))
    parts: list[RenderableType] = [table]
    if above:
        parts.insert(0, line(f"{counted(above, 'cell')} above", "dim"))
    if below:
        parts.append(line(f"{counted(below, 'cell')} below", "dim"))
    return Group(*parts, line(last_line(cells, left, note), "bold"))


def _cells_of(one: CellNow) -> list[tuple[str, str]]:
    number, name = str(one.cell.number), one_line(one.cell.name)
    if one.ran is not None:
        came, took = one.ran.result, f"{one.ran.seconds:.0f}"
        style = _STYLES.get(came, "magenta")
        return [(number, ""), (name, ""), (came, style), (took, ""), (one_line(one.ran.where), "")]
    if one.seconds is None:
        return [(text, "dim") for text in (number, name, "waits", "", "")]
    at = where(one.ranks, time.monotonic())
    return [(number, ""), (name, "bold"), ("runs", "cyan"), (f"{one.seconds:.0f}", ""), (at, "")]


def chosen(cells: Sequence[CellNow], room: int) -> tuple[list[CellNow], int, int]:
    """Return the cells to show, from a few above the first that runs, and how many are above and
    below them.
    """
    if len(cells) <= room:
        return list(cells), 0, 0
    running = [i for i, one in enumerate(cells) if one.seconds is not None]
    waiting = [i for i, one in enumerate(cells) if one.ran is None]
    first = (running or waiting or [len(cells)])[0]
    start = max(min(first - room // 3, len(cells) - room), 0)
    return list(cells[start : start + room]), start, len(cells) - start - room


def last_line(cells: Sequence[CellNow], left: float | None, note: str) -> str:
    """Return how many ended how, and about how long the rest takes."""
    results = [one.ran.result for one in cells if one.ran is not None]
    counts = ", ".join(f"{results.count(came)} {came}" for came in dict.fromkeys(results))
    done = f"{len(results)} of {counted(len(cells), 'cell')} done" + (
        f": {counts}" if counts else ""
    )
    about = f"; about {seconds(left)} left" if left else ""
    return f"{done}{about}{'; ' + note if note else ''}"
