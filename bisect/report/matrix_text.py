"""A matrix in words and as data: the table while it runs and at its end, JSON, and JUnit XML for
what shows tests.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TextIO

from ..base.columns import Column, fitted, in_columns, styled
from ..base.lazy_dataclass import dataclass
from ..base.masking import mask, mask_command
from ..base.version import VERSION
from ..base.words import (
    cut_line,
    format_count,
    format_ranges,
    format_seconds,
    join_lines,
    printable,
    terminal_size,
)
from ..search.cells import (
    AS_IT_IS,
    Cell,
    CellOutcome,
    CellRun,
    CellState,
    MatrixStatus,
    RankPosition,
    RecordedCell,
    RecordedMatrix,
    matrix_exit_status,
)

# ECMA-48 colours, for a terminal that has them.
_COLOURS: Mapping[CellOutcome, str] = {"ok": "32", "slow": "33", "hang": "31;1", "crash": "31"}
_OTHER = "35"
_HEAD = ("#", "cell", "setting", "result", "s", "where")
_WIDEST = 40  # characters of a cell's name or setting
_CUT = "…"  # as the live table has it


@dataclass(frozen=True)
class MatrixResult:
    """A matrix, as far as it got."""

    scenario: str  # its file, or the name of one of ours
    title: str
    started_in: str
    folder: str
    started: str  # UTC
    seconds: float
    jobs: int
    cells: tuple[Cell, ...]
    ran: tuple[CellRun, ...]
    interrupted: bool = False

    @property
    def status(self) -> MatrixStatus:
        """The exit status."""
        results = [ran.result for ran in self.ran]
        return matrix_exit_status([*results, "interrupted"] if self.interrupted else results)


# ---- for people ----------------------------------------------------------------------------------


def result_table(
    outcome: MatrixResult, *, width: int | None = None, colours: bool = False
) -> list[str]:
    """Return a row for each cell; `width` is the terminal's, None for a pipe: nothing is cut."""
    ran = {one.number: one for one in outcome.ran}
    rows = [_HEAD, *(_format_cell_row(cell, ran.get(cell.number)) for cell in outcome.cells)]
    if all(format_setting(cell.setting) in (cell.name, AS_IT_IS) for cell in outcome.cells):
        rows = [(*row[:2], *row[3:]) for row in rows]
    widths = [max(len(_short(row[i])) for row in rows) for i in range(len(rows[0]) - 1)]
    lines = [_line(row, widths, width) for row in rows]
    if not colours:
        return lines
    before = sum(width + 2 for width in widths[:-2])  # the result stands before the seconds
    results = [None, *(ran[c.number].result if c.number in ran else None for c in outcome.cells)]
    return [
        _colour_result(line, before, result) for line, result in zip(lines, results, strict=True)
    ]


def _line(row: Sequence[str], widths: Sequence[int], width: int | None) -> str:
    parts = [f"{_short(text):{size}}" for text, size in zip(row, widths, strict=False)]
    return cut_line(printable("  ".join([*parts, row[-1]])), width, _CUT)


def format_setting(setting: Mapping[str, str]) -> str:
    """Return a setting as people write it."""
    return " ".join(f"{name}={value}" for name, value in setting.items()) or AS_IT_IS


def _format_cell_row(cell: Cell, ran: CellRun | None) -> tuple[str, ...]:
    result, took, where = ("not run", "", "")
    if ran is not None:
        cause = f" ({ran.cause})" if ran.cause else ""
        result, took, where = ran.result, f"{ran.seconds:.0f}", ran.where + cause
    return (str(cell.number), cell.name, format_setting(cell.setting), result, took, where)


def _short(text: str) -> str:
    return cut_line(join_lines(text), _WIDEST, _CUT)


def _colour_result(line: str, at: int, result: CellOutcome | None) -> str:
    if result is None:
        return line
    end = at + len(result)
    return f"{line[:at]}\x1b[{_COLOURS.get(result, _OTHER)}m{line[at:end]}\x1b[0m{line[end:]}"


def summarise_matrix(results: MatrixResult) -> str:
    """Return how many cells ended how, and how long all took."""
    ended = [ran.result for ran in results.ran]
    counts = [f"{ended.count(came)} {came}" for came in dict.fromkeys(ended)]
    left = len(results.cells) - len(results.ran)
    counts += [f"{left} not run"] if left else []
    return f"{format_count(len(results.cells), 'cell')}: {', '.join(counts)}; " + (
        format_seconds(results.seconds)
    )


# ---- for programs --------------------------------------------------------------------------------


def record_matrix(results: MatrixResult) -> RecordedMatrix:
    """Return what matrix.json holds, secrets masked."""
    ran = {one.number: one for one in results.ran}
    return RecordedMatrix(
        scenario=results.scenario,
        title=results.title,
        started_in=results.started_in,
        started=results.started,
        seconds=round(results.seconds, 3),
        jobs=results.jobs,
        status=results.status,
        complete=len(results.ran) == len(results.cells) and not results.interrupted,
        cells=tuple(record_cell(cell, ran.get(cell.number)) for cell in results.cells),
        versions={"hangbisect": VERSION},
    )


def record_cell(cell: Cell, ran: CellRun | None) -> RecordedCell:
    """Return a cell and what came of it, if it was run, secrets masked."""
    found = RecordedCell(
        cell.number, cell.name, cell.setting, cell.launcher, cell.nodes, cell.ranks
    )
    if ran is None:
        return found
    return replace(
        found,
        result=ran.result,
        where=printable(ran.where),
        cause=ran.cause,
        seconds=ran.seconds,
        command=tuple(mask_command(ran.command)),
        environment={name: mask(name, value) for name, value in ran.environment.items()},
        run_dir=ran.run_dir or None,
        mark=ran.mark,
    )


def _message(ran: CellRun) -> str:
    """Return "hang at checkpoint 9 in wandb.init, rank 0" or "crash: ValueError: no"."""
    between = " " if ran.where.startswith(("at ", "in ")) else ": "
    return f"{ran.result}{between}{ran.where}" if ran.where else ran.result


def matrix_junit(results: MatrixResult) -> str:
    """Return JUnit XML: a test a cell; a hang, a crash or a slow one is a failure."""
    from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

    ran = {one.number: one for one in results.ran}
    suite = TestSuite(printable(results.title) or "hangbisect matrix")
    for cell in results.cells:
        one = ran.get(cell.number)
        test = TestCase(printable(cell.name), classname=f"hangbisect.{_stem(results.scenario)}")
        if one is None or one.result == "interrupted":
            test.result = [Skipped("not run: the matrix was interrupted")]
        else:
            test.time = one.seconds
            message = printable(_message(one))
            if one.result in ("hang", "crash", "slow"):
                test.result = [Failure(message, one.result)]
            elif one.result != "ok":
                test.result = [Error(message, one.result)]
            if one.run_dir:
                test.system_out = printable(f"run folder: {one.run_dir}")
        suite.add_testcase(test)
    xml = JUnitXml("hangbisect")
    xml.add_testsuite(suite)
    text: bytes = xml.tostring()  # type: ignore[no-untyped-call]  # junitparser says no types here
    return text.decode("utf-8")


def _stem(file: str) -> str:
    return printable(file.rstrip("/").rpartition("/")[2].rpartition(".")[0] or file)


_OTHER_LINES = 5  # of the table: its head, what is left out above and below, and the last line
_SPOKEN = 30.0  # seconds between two lines on a cell that goes on
_STYLES = {"ok": "green", "slow": "yellow", "hang": "bold red", "crash": "red"}


class LiveTable:
    """On a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._height = 0  # of the table that stands there, above the cursor

    def show(self, cells: Sequence[CellState], left: float | None, note: str) -> None:
        """Draw how things are; `left`: seconds for the rest."""
        rows = draw_table(cells, left, note, _size_of(self._stream))
        self._write("".join(f"{row}\x1b[K\n" for row in rows))
        self._height = len(rows)

    def close(self) -> None:
        """Take the table away."""
        self._write("")
        self._height = 0

    def _write(self, text: str) -> None:
        """Write in place of the table that stands there."""
        up = f"\x1b[{self._height}A" if self._height else ""
        self._stream.write(f"{up}\r{text}\x1b[J")
        self._stream.flush()


def _size_of(stream: TextIO) -> os.terminal_size:
    try:
        columns, lines = terminal_size(stream.fileno())
    except OSError:  # what has no descriptor
        columns, lines = None, None
    return os.terminal_size((columns or 80, lines or 24))


class LiveLines:
    """Anywhere else: a line when something begins or ends, and now and then in between."""

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now = now
        self._begun = False
        self._said: dict[int, float] = {}  # when something was last said of a cell
        self._ended: set[int] = set()
        self._note = ""

    def show(self, cells: Sequence[CellState], left: float | None, note: str) -> None:
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

    def _done_before(self, cells: Sequence[CellState]) -> None:
        """What an interrupted matrix left is no news."""
        self._begun = True
        self._ended = {one.cell.number for one in cells if one.ran is not None}
        if self._ended:
            self._say(f"{format_count(len(self._ended), 'cell')} done before")

    def _ending(self, name: str, ran: CellRun, left: float | None) -> None:
        if ran.number not in self._ended:
            self._ended.add(ran.number)
            came = f"{ran.result}: {ran.where}" if ran.where else ran.result
            about = f"; about {format_seconds(left)} left" if left else ""
            self._say(f"{name}: {came}, {format_seconds(ran.seconds)}{about}")

    def _going_on(self, name: str, one: CellState, had: float) -> None:
        now, said = self._now(), self._said.get(one.cell.number)
        if said is None:
            self._say(f"{name}: started")
        elif now - said >= _SPOKEN:
            at = one.note or describe_ranks(one.ranks, now)
            self._say(f"{name}: {format_seconds(had)}, {at}")
        else:
            return
        self._said[one.cell.number] = now

    def _say(self, text: str) -> None:
        print(f"[{time.strftime('%H:%M:%S')}] {join_lines(text)}", file=self._stream, flush=True)


# ---- the parts -----------------------------------------------------------------------------------


def describe_ranks(ranks: Iterable[RankPosition], now: float) -> str:
    """Return where each rank is: "0: 9 WandbLogger ready 12 s; 1-7: wait"."""
    groups: dict[str, list[RankPosition]] = {}
    for one in ranks:
        groups.setdefault(_describe_place(one), []).append(one)
    parts = [
        f"{format_ranges(one.rank for one in group)}: {place} {_longest_stay(group, now)}"
        for place, group in groups.items()
    ]
    return "; ".join(parts) or "starts"


def _describe_place(one: RankPosition) -> str:
    if one.waits:
        return "waits"
    name = one.phase or one.title
    if one.checkpoint is None:
        return name or "runs"
    return f"{one.checkpoint} {name}" if name else "ends"  # past the last checkpoint


def _longest_stay(group: Sequence[RankPosition], now: float) -> str:
    return f"{max(now - one.since for one in group):.0f} s"


def draw_table(
    cells: Sequence[CellState], left: float | None, note: str, size: os.terminal_size
) -> list[str]:
    """Return the rows of the table as a terminal of this size can show them."""
    width = max(size.columns - 1, 1)
    shown, above, below = choose_cells(cells, max(size.lines - _OTHER_LINES, 1))
    table = (
        Column("#", right=True, is_whole=True),
        Column("cell", most=max(size.columns // 3, 1)),
        Column(is_whole=True),
        Column("s", right=True, is_whole=True),
        Column("where"),
    )
    rows = in_columns(table, [_cells_of(one) for one in shown], width, head="bold")
    if above:
        rows.insert(0, styled(fitted(f"{format_count(above, 'cell')} above", width), "dim"))
    if below:
        rows.append(styled(fitted(f"{format_count(below, 'cell')} below", width), "dim"))
    return [*rows, styled(fitted(progress_line(cells, left, note), width), "bold")]


def _cells_of(one: CellState) -> list[tuple[str, str]]:
    number, name = str(one.cell.number), join_lines(one.cell.name)
    if one.ran is not None:
        came, took = one.ran.result, f"{one.ran.seconds:.0f}"
        style = _STYLES.get(came, "magenta")
        return [
            (number, ""),
            (name, ""),
            (came, style),
            (took, ""),
            (join_lines(one.ran.where), ""),
        ]
    if one.seconds is None:
        return [(text, "dim") for text in (number, name, "waits", "", one.note)]
    at = one.note or describe_ranks(one.ranks, time.monotonic())
    return [(number, ""), (name, "bold"), ("runs", "cyan"), (f"{one.seconds:.0f}", ""), (at, "")]


def choose_cells(cells: Sequence[CellState], room: int) -> tuple[list[CellState], int, int]:
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


def progress_line(cells: Sequence[CellState], left: float | None, note: str) -> str:
    """Return how many ended how, and about how long the rest takes."""
    results = [one.ran.result for one in cells if one.ran is not None]
    counts = ", ".join(f"{results.count(came)} {came}" for came in dict.fromkeys(results))
    done = f"{len(results)} of {format_count(len(cells), 'cell')} done" + (
        f": {counts}" if counts else ""
    )
    about = f"; about {format_seconds(left)} left" if left else ""
    return f"{done}{about}{'; ' + note if note else ''}"
