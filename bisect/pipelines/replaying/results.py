"""What came of each input: its output on disk, which is compared with or kept for later; and the
figures as lines, as a table, as JSON.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...base.columns import Column, in_columns
from ...base.files import write_whole
from ...base.words import format_bytes, format_duration
from ...captures.capture_file import encode_call
from ...captures.reading import Capture, load, outputs_beside

MADE_INPUT = "made"  # the name of an input that was made


def load_earlier_output(path: str, folder: str | None) -> Capture | None:
    """Return what the call of an input at `path` returned: when it was captured, or, with a
    `folder`, when outputs were kept there. None if nothing is there. Raises Unreadable.
    """
    beside = outputs_beside(path)
    place = os.path.join(folder, os.path.basename(beside)) if folder else beside
    return load(place) if os.path.exists(place) else None


def keep_output(output: Any, folder: str, name: str, module: Any, rank: int, ranks: int) -> None:
    """Write what the input `name` gave into `folder`. Raises OSError."""
    data = encode_call(
        module,
        output,
        kind="outputs",
        name=type(module).__name__,
        rank=rank,
        world_size=ranks,
        at=time.time(),
    )
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, os.path.basename(outputs_beside(name)))
    write_whole(path, data)


SCHEMA = 1
_MOST_ROWS = 40
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
        told = [f"forward {format_duration(self.forward_s)}"]
        if self.backward_s is not None:
            told.append(f"backward {format_duration(self.backward_s)}")
        if self.tokens_a_second is not None:
            told.append(f"{self.tokens_a_second:,.0f} tokens/s")
        told.append(f"peak {format_bytes(self.memory_bytes)}")
        if self.difference is not None:
            told.append(
                f"differs by {format_difference(self.difference)} ({self.differs_in or 'output'})"
            )
        return ", ".join([*told, *([self.raised] if self.raised else [])])


def results_as_data(
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


def format_table(results: Sequence[Result]) -> list[str]:
    """Return a row for each input; of many the failed, the slowest and the most different.

    As wide as it is: a terminal that is narrower wraps it, and no number is cut.
    """
    shown = select_telling(results)
    rows = [_cells(one) for one in shown]
    columns = [place for place in range(len(_COLUMNS)) if any(row[place] != "-" for row in rows)]
    made = [Column(_COLUMNS[place], right=bool(place)) for place in columns]
    lines = in_columns(made, [[(row[place], "") for place in columns] for row in rows])
    if len(shown) < len(results):
        lines.append(f"and {len(results) - len(shown):,} more; all of them in the JSON file")
    return lines


def select_telling(results: Sequence[Result]) -> list[Result]:
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
        format_bytes(one.memory_bytes),
        "-" if one.difference is None else format_difference(one.difference),
    ]


def format_difference(value: float) -> str:
    """Return "0", "inf" or "3.1e-06"."""
    return f"{value:.1e}" if value and math.isfinite(value) else f"{value:g}"


def format_summary(results: Sequence[Result]) -> str:
    """Return all inputs in one line."""
    done = [one.forward_s for one in results if not one.raised]
    later = [one.forward_s for one in results if not (one.raised or one.first)]
    told = [f"{len(results):,} input{'' if len(results) == 1 else 's'} replayed"]
    if failed := len(results) - len(done):
        told.append(f"{failed:,} failed")
    if done and results[0].first and not results[0].raised:
        told.append(f"the first forward {format_duration(results[0].forward_s)}")
    if later:
        told.append(f"later ones {format_duration(statistics.median(later))} (median)")
    differences = [one.difference for one in results if one.difference is not None]
    if differences:
        told.append(f"the largest difference {format_difference(max(differences))}")
    return ", ".join(told)
