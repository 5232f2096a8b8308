"""Which rank came how far, and how long each step took it, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..kept.span import Row, Span
from ..kept.timeline import Timeline
from ..words import brief, counted, seconds
from .plain import code, table

COLUMNS = 8  # ranks that have a column of their own
MOST_ROWS = 60
BETWEEN = "between two steps"
_ROWS = ("step", "own step", "phase", "training")


@dataclass
class _Step:
    """One row: the same step of all ranks."""

    number: int | None
    title: str  # "": between two steps
    depth: int
    first: float  # when any rank began it first
    took: dict[int, float] = field(default_factory=dict)  # by rank: all times that it was done
    times: dict[int, int] = field(default_factory=dict)
    inside: dict[int, Span] = field(default_factory=dict)  # those that did not come out of it


def checkpoint_table(found: Timeline) -> str:
    """Return the table, "" where nobody told of a step."""
    steps = _steps(found.rows)
    if not steps:
        return ""
    ranks = [row.rank for row in found.rows]
    shown, left = steps[:MOST_ROWS], len(steps) - MOST_ROWS
    whole = ranks if len(ranks) <= COLUMNS else None
    head = ["#", "checkpoint", *([f"rank {r}" for r in ranks] if whole else _HEAD)]
    by_rank = {row.rank: row for row in found.rows}
    rows = [[*_name(step), *_cells(step, by_rank, found.length, whole)] for step in shown]
    more = f"\n\n{counted(left, 'more step')}, begun later." if left > 0 else ""
    return table(head, rows) + more


_HEAD = ("done by", "seconds", "not by")


def _steps(rows: Sequence[Row]) -> list[_Step]:
    """Return all steps, in the order in which ranks first began them."""
    steps: dict[tuple[str, str, int | None], _Step] = {}
    for row in rows:
        for span in row.spans:
            between = span.end is None and not span.depth and span.kind in ("hang", "wait")
            if span.kind not in _ROWS and not between:
                continue
            # A step of the user's own may have the name of a checkpoint's phase.
            key = ("", "", None) if between else (span.kind, span.name, span.number)
            title = "" if between else span.title
            step = steps.setdefault(key, _Step(span.number, title, span.depth, span.start))
            step.first = min(step.first, span.start)
            if span.end is None:
                step.inside[row.rank] = span
            else:
                step.took[row.rank] = step.took.get(row.rank, 0.0) + span.end - span.start
                step.times[row.rank] = step.times.get(row.rank, 0) + 1
    return sorted(steps.values(), key=lambda step: (step.first, step.depth))


def _name(step: _Step) -> tuple[str, str]:
    number = "" if step.number is None or step.depth else str(step.number)
    return number, f"{'· ' * step.depth}{code(step.title, 60) or BETWEEN}"


def _cells(
    step: _Step, rows: Mapping[int, Row], length: float, ranks: Sequence[int] | None
) -> list[str]:
    if ranks is not None:
        return [_cell(step, rows[rank], length) for rank in ranks]
    done = {rank: took for rank, took in step.took.items() if rank not in step.inside}
    lacking = rows.keys() - done.keys()
    span = ""
    if done:
        low, high = seconds(min(done.values())), seconds(max(done.values()))
        span = low if low == high else f"{low} to {high}"
    return [
        f"{len(done)} of {len(rows)}",
        span,
        "; ".join(_lacking(step, rows, sorted(lacking))),
    ]


def _lacking(step: _Step, rows: Mapping[int, Row], ranks: Sequence[int]) -> list[str]:
    """Return who did not end a step, by what became of them: "**hang** 3-5", "not begun 7"."""
    by_state: dict[str, list[int]] = {}
    for rank in ranks:
        by_state.setdefault(_state(step, rows[rank]), []).append(rank)
    return [f"{state}: {brief(them)}" for state, them in by_state.items()]


def _cell(step: _Step, row: Row, length: float) -> str:
    inside = step.inside.get(row.rank)
    if inside is not None:
        return f"{_state(step, row)} {seconds(max(0.0, length - inside.start))}"
    if row.rank not in step.took:
        return ""
    times = step.times[row.rank]
    return seconds(step.took[row.rank]) + (f" (×{times})" if times > 1 else "")  # noqa: RUF001  # a sign that is read at once


def _state(step: _Step, row: Row) -> str:
    """Return what a rank does that did not end a step."""
    if row.rank not in step.inside:
        return "left" if row.ended is not None else "not begun"
    kinds = {span.kind for span in row.spans if span.end is None}
    if "hang" in kinds:
        return "**hangs**"
    return "waits" if "wait" in kinds else "in it"
