"""What came of each input: as lines, as a table, as JSON."""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..generating.words import duration, size

SCHEMA = 1
_MOST_ROWS = 40
_WIDEST = 1000  # columns
_COLUMNS = ("input", "tokens", "forward", "backward", "tokens/s", "peak", "difference")


@dataclass(frozen=True)
class Result:
    """Of one input."""

    name: str  # of its file, without the folder and what all of them end in
    captured_on: int  # rank
    tokens: int  # 0 where nothing in it is counted in tokens
    forward_s: float
    backward_s: float | None = None
    memory_bytes: int = 0  # the peak: on a GPU of this input, else of the process until now
    difference: float | None = None
    differs_in: str = ""
    raised: str = ""
    first: bool = False  # of this rank: what compiles does so here

    @property
    def tokens_a_second(self) -> float | None:
        """Of the forward; None of one that failed."""
        timed = self.tokens and self.forward_s and not self.raised
        return self.tokens / self.forward_s if timed else None

    def in_words(self) -> str:
        """Return all of it on one line."""
        told = [f"forward {duration(self.forward_s)}"]
        if self.backward_s is not None:
            told.append(f"backward {duration(self.backward_s)}")
        if self.tokens_a_second is not None:
            told.append(f"{self.tokens_a_second:,.0f} tokens/s")
        told.append(f"peak {size(self.memory_bytes)}")
        if self.difference is not None:
            told.append(f"differs by {number(self.difference)} ({self.differs_in or 'output'})")
        return ", ".join([*told, *([self.raised] if self.raised else [])])


def as_data(
    results: Sequence[Result], settings: dict[str, Any], rank: int, seconds: float
) -> dict[str, Any]:
    """Return the results for JSON; `seconds` is what all of it took."""
    inputs = [
        {
            **asdict(one),
            "difference": _json_number(one.difference),
            "tokens_a_second": one.tokens_a_second,
        }
        for one in results
    ]
    whole = {"schema": SCHEMA, "rank": rank, "seconds": seconds, "settings": settings}
    return {**whole, "inputs": inputs}


def _json_number(value: float | None) -> float | str | None:
    """Return a number that JSON has; infinity as a text."""
    return "inf" if value == float("inf") else value


def table(results: Sequence[Result]) -> list[str]:
    """Return a row for each input; of many the failed, the slowest and the most different.

    As wide as it is: a terminal that is narrower wraps it, and no number is cut.
    """
    from rich.console import Console
    from rich.table import Table

    shown = most_telling(results)
    rows = [_cells(one) for one in shown]
    columns = [place for place in range(len(_COLUMNS)) if any(row[place] != "-" for row in rows)]
    made = Table(box=None, pad_edge=False, header_style="")
    for place in columns:
        made.add_column(_COLUMNS[place], justify="right" if place else "left", no_wrap=True)
    for row in rows:
        made.add_row(*(row[place] for place in columns))
    to = Console(file=io.StringIO(), width=_WIDEST, color_system=None, legacy_windows=False)
    to.print(made)
    lines = [line.rstrip() for line in to.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    if len(shown) < len(results):
        lines.append(f"and {len(results) - len(shown):,} more; all of them in the JSON file")
    return lines


def most_telling(results: Sequence[Result]) -> list[Result]:
    """Return all of up to 40; of more those that failed, were slowest or differ most, in order."""
    if len(results) <= _MOST_ROWS:
        return list(results)
    some = _MOST_ROWS // 2
    places = [at for at, one in enumerate(results) if one.raised or one.first][:some]
    by_time = sorted(range(len(results)), key=lambda at: -results[at].forward_s)
    by_difference = sorted(range(len(results)), key=lambda at: -(results[at].difference or 0.0))
    telling = dict.fromkeys([*places, *by_time[: some // 2], *by_difference[: some // 2]])
    return [results[at] for at in sorted(telling)]


def _cells(one: Result) -> list[str]:
    speed = one.tokens_a_second
    return [
        one.name,
        f"{one.tokens:,}" if one.tokens else "-",
        "failed" if one.raised else f"{one.forward_s:.3f} s",
        "-" if one.backward_s is None else f"{one.backward_s:.3f} s",
        "-" if speed is None else f"{speed:,.0f}",
        size(one.memory_bytes),
        "-" if one.difference is None else number(one.difference),
    ]


def number(value: float) -> str:
    """Return "0", "inf" or "3.1e-06"."""
    return f"{value:.1e}" if value and math.isfinite(value) else f"{value:g}"


def summary(results: Sequence[Result]) -> str:
    """Return all inputs in one line."""
    done = [one.forward_s for one in results if not one.raised]
    later = [one.forward_s for one in results if not (one.raised or one.first)]
    told = [f"{len(results):,} input{'' if len(results) == 1 else 's'} replayed"]
    if failed := len(results) - len(done):
        told.append(f"{failed:,} failed")
    if done and results[0].first and not results[0].raised:
        told.append(f"the first forward {duration(results[0].forward_s)}")
    if later:
        told.append(f"later ones {duration(statistics.median(later))} (median)")
    differences = [one.difference for one in results if one.difference is not None]
    if differences:
        told.append(f"the largest difference {number(max(differences))}")
    return ", ".join(told)
