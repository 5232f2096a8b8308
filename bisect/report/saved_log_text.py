"""What a saved log says of a job, in words and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..base.columns import Column, in_columns
from ..base.words import cut_line, format_count, format_ranks, format_seconds, join_lines, printable
from .rows import Row, format_rows, make_rows

if TYPE_CHECKING:
    from ..saved_log import Checkpoint, Progress

_COLUMNS = 8  # ranks that have a column of their own
_TITLE = 44  # characters of a checkpoint
_LAST = 16  # ranks whose last line is shown


def log_lines(found: Progress, name: str, width: int | None = None) -> list[str]:
    """Return the table of checkpoints, the last line of each rank, who is missing, and the verdict
    where the log has one; `width` is the terminal's, None: nothing is cut.
    """
    lines = [f"{name}: {format_count(found.world, 'rank')}, {_seen(found)}", ""]
    lines += _table(found)
    lines += ["", *format_rows([*_last_lines(found), *_missing(found)])]
    if found.verdict:
        lines += ["", f"the verdict, line {found.verdict_line} of the log", *found.verdict]
    return [cut_line(printable(line), width) for line in lines]


def _seen(found: Progress) -> str:
    again = sum(one.starts - 1 for one in found.ranks)
    of = f"{len(found.ranks)} with lines of their own"
    return of + (f", {format_count(again, 'earlier start')} left out" if again else "")


def _table(found: Progress) -> list[str]:
    if not found.checkpoints:
        return ["no checkpoint was reached"]
    head = [f"rank {rank}" for rank in range(found.world)]
    head = head if found.world <= _COLUMNS else ["reached by", "elapsed"]
    columns = [Column("checkpoint"), *(Column(name, right=True) for name in head), Column()]
    rows = []
    for checkpoint in found.checkpoints:
        lacks = found.missing(checkpoint)
        tail = f"missing: {format_ranks(lacks)}" if lacks else ""
        words = cut_line(join_lines(checkpoint.words), _TITLE)
        rows.append(
            [(text, "") for text in (words, *_format_progress_row(found, checkpoint), tail)]
        )
    return in_columns(columns, rows)


def _format_progress_row(found: Progress, checkpoint: Checkpoint) -> list[str]:
    times = checkpoint.elapsed
    if found.world <= _COLUMNS:
        return [f"{times[r]:.1f} s" if r in times else "-" for r in range(found.world)]
    span = f"{min(times.values()):.1f} to {max(times.values()):.1f} s"
    return [f"{len(times)} of {found.world}", span]


def _last_lines(found: Progress) -> list[Row]:
    """Return what each rank said last, those that have been silent for longest first."""
    rows: list[Row] = []
    ranks = sorted(found.ranks, key=lambda one: (-one.age, one.rank))
    for one in ranks[:_LAST]:
        ago = f"{format_seconds(one.age)} before the log's end, at +{one.elapsed:.1f} s"
        rows += make_rows("last line", f'rank {one.rank}, {ago}: "{join_lines(one.last)}"')
    left = len(ranks) - _LAST
    return rows + make_rows("", f"and of {format_count(left, 'more rank')}" if left > 0 else "")


def _missing(found: Progress) -> list[Row]:
    rows = make_rows("silent", f"{format_ranks(found.silent)}: no line" if found.silent else "")
    first = next((c for c in found.checkpoints if found.missing(c)), None)
    if first is None:
        return rows or make_rows("missing", "nobody: every rank reached every checkpoint above")
    text = f"{format_ranks(found.missing(first))}: not at checkpoint {first.words}"
    return rows + make_rows("missing", text)


def log_json(found: Progress) -> dict[str, Any]:
    """Return the same as an object. Seconds throughout."""
    return {
        "schema": 1,
        "world_size": found.world,
        "checkpoints": [
            {
                "name": one.name,
                "title": one.title,
                "elapsed": {str(rank): at for rank, at in sorted(one.elapsed.items())},
                "missing": list(found.missing(one)),
            }
            for one in found.checkpoints
        ],
        "ranks": [asdict(one) for one in found.ranks],
        "silent": list(found.silent),
        "verdict": list(found.verdict),
    }
