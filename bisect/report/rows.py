"""An answer as data: a headline, and rows of a label, a text and what belongs to it. It is worded
into rows once; code that prints it has rows, and never a line to take apart.

The rows of a verdict are made in verdict_rows.py, which needs a diagnosis. The ranks of a job that
ends well wait for `word_good_run`, so this module imports none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from ..base.lazy_dataclass import dataclass
from ..base.verdict_facts import Verdict
from ..base.words import (
    cut_line,
    format_count,
    format_ranks,
    format_seconds,
    join_lines,
    printable,
    wrap_line,
)

LABEL = 10  # columns


@dataclass(frozen=True)
class Row:
    """One thing that an answer says."""

    label: str  # "culprit", the same wherever it is printed
    text: str
    detail: tuple[str, ...] = ()  # further texts of the same label, a line each
    aside: str = ""  # what stands behind the text, in a column of its own
    column: int = 0  # where that column begins
    is_whole: bool = False  # holds a command, which is there to be copied: not to be broken


@dataclass(frozen=True)
class Answer:
    """What is said of a job, of an isolation or of dumps."""

    headline: str
    rows: tuple[Row, ...]


def make_rows(label: str, *texts: str) -> list[Row]:
    """Return a row with these texts, none if there is nothing to say."""
    lines = [join_lines(text) for text in texts if text]
    return [Row(label, lines[0], tuple(lines[1:]))] if lines else []


def add_detail(rows: Sequence[Row], texts: Sequence[str]) -> list[Row]:
    """Return `rows` with further texts below the last of them."""
    if not rows:
        return make_rows("", *texts)
    detail = tuple(join_lines(text) for text in texts if text)
    return [*rows[:-1], replace(rows[-1], detail=(*rows[-1].detail, *detail))]


def change_texts(answer: Answer, change: Callable[[str], str]) -> Answer:
    """Return an answer with each of its texts changed."""
    rows = [
        replace(
            row,
            text=change(row.text),
            detail=tuple(map(change, row.detail)),
            aside=change(row.aside),
        )
        for row in answer.rows
    ]
    return Answer(change(answer.headline), tuple(rows))


def count_lines(rows: Iterable[Row]) -> int:
    """Return how many lines rows take where none is broken."""
    return sum(1 + len(row.detail) for row in rows)


def limit_rows(rows: Iterable[Row], most: int) -> list[Row]:
    """Return the first of `rows`, which take at most so many lines."""
    kept: list[Row] = []
    for row in rows:
        room = most - count_lines(kept)
        if room <= 0:
            break
        kept.append(replace(row, detail=row.detail[: room - 1]))
    return kept


# ---- as lines ------------------------------------------------------------------------------------


def format_answer(answer: Answer, width: int | None = None) -> list[str]:
    """Return an answer as lines; `width` is the terminal's, None for a pipe: nothing is cut."""
    lines = [printable(answer.headline), *format_rows(answer.rows)]
    return [cut_line(line, width) for line in lines]


def format_rows(rows: Iterable[Row]) -> list[str]:
    """Return rows as lines of any length, the label in front of the first one of each."""
    return [printable(line) for row in rows for line in _lines_of(row)]


def wrap_rows(rows: Iterable[Row], width: int | None) -> list[str]:
    """Return rows as lines, each broken between words as `wrap_line` does."""
    return [
        part
        for row in rows
        for line in format_rows([row])
        for part in ([line] if row.is_whole else wrap_line(line, width, LABEL))
    ]


def _lines_of(row: Row) -> Iterator[str]:
    first = f"{row.label:<{LABEL}}{row.text}"
    yield f"{first:<{row.column}}  {row.aside}" if row.aside else first
    yield from (f"{'':<{LABEL}}{text}" for text in row.detail)


# ---- of a job that ended well --------------------------------------------------------------------


def word_good_run(
    verdict: Verdict,
    not_exercised: Sequence[str] = (),
    slowest: str = "",
    run_dir: str = "",
    runs_script: bool = False,
) -> Answer:
    """Return the answer for a good run. `slowest` is which step took longest, in words;
    `runs_script`: it was a script of the user's own.
    """
    parts = [verdict.pipeline, *_count_ranks(verdict), format_seconds(verdict.seconds.total)]
    head = f"OK  {', '.join(p for p in parts if p)}"
    rows = []
    for late in verdict.slow_steps[:3]:
        phase = f" ({late.phase})" if late.phase else ""
        number = f"{late.checkpoint} " if late.checkpoint is not None else ""
        text = f"step {number}{late.name}{phase} took {format_seconds(late.seconds)}, "
        text += f"allowed {format_seconds(late.deadline)}, {format_ranks(late.ranks)}"
        rows.append(Row("late", text))
    rows += make_rows("barrier opened", verdict.barrier_opened or "")
    rows += make_rows("not exercised", ", ".join(map(join_lines, not_exercised)))
    rows += [Row("report", run_dir)] if run_dir else []
    if not runs_script:
        rows.append(Row("your own job", "hangbisect run -- <the command you use today>"))
    return Answer(head + (f"; slowest step {slowest}" if slowest else ""), tuple(rows))


def format_good_run(answer: Answer, width: int | None = None) -> list[str]:
    """Return what `word_good_run` tells as lines; `width` as above."""
    lines = [answer.headline, *(f"    {row.label}: {row.text}" for row in answer.rows)]
    return [cut_line(printable(line), width) for line in lines]


def _count_ranks(verdict: Verdict) -> list[str]:
    """Return of how many ranks it is said: no more than were seen."""
    seen = len(verdict.seen_ranks)
    if not seen or seen >= verdict.world_size:
        hosts = f" on {len(verdict.nodes)} hosts" if len(verdict.nodes) > 1 else ""
        return [format_count(verdict.world_size, "rank") + hosts]
    return [f"{seen} of {format_count(verdict.world_size, 'rank')}", "those of this node"]
