"""Where each rank was when, on one clock for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from ...pipelines.startup import PIPELINE
from ..words import of_ranks
from .event_lines import is_number
from .rows import Event, Rows, numbers_of
from .run import KeptRun
from .span import Row, Span


@dataclass(frozen=True)
class Timeline:
    """All ranks. Times are seconds since the first of them began."""

    rows: tuple[Row, ...] = ()  # by rank
    length: float = 0.0  # to the verdict; without one to the last event
    began: float | None = None  # the same moment as 0, in seconds since 1970
    titles: Mapping[int, str] = field(default_factory=dict)  # of the checkpoints, by number


def timeline(run: KeptRun) -> Timeline:
    """Return where each rank was when; no rows where nobody told it: `attach` finds a job that
    runs already.

    Each node has a monotonic clock of its own; they are brought together by what each node has for
    the time of day, so between nodes this is as good as those agree.
    """
    nodes = [part.events for part in run.everywhere if any("rank" in one for one in part.events)]
    if not nodes:
        return Timeline()
    offsets = [to_the_time_of_day(events) for events in nodes]
    began = min(_began(events) + offset for events, offset in zip(nodes, offsets, strict=True))
    ends = [_end(events) + offset for events, offset in zip(nodes, offsets, strict=True)]
    titles = _titles(run, nodes)
    rows: dict[int, Row] = {}
    for events, offset, end in zip(nodes, offsets, ends, strict=True):
        for row in _rows(events, began - offset, end - began, titles):
            rows.setdefault(row.rank, row)
    length = max(ends) - began
    told = _with_the_verdict(run.verdict, rows, length)
    return Timeline(tuple(told), length, began if any(offsets) else None, titles)


def _rows(events: Sequence[Event], zero: float, end: float, titles: Mapping[int, str]) -> list[Row]:
    rows = Rows(titles, numbers_of(events))
    for event in events:
        at = float(event["at"]) - zero
        if at <= end:  # what follows the verdict is the end of the job, by us
            rows.take(event, max(at, 0.0))
    return rows.rows()


# ---- clocks --------------------------------------------------------------------------------------


def to_the_time_of_day(events: Sequence[Event]) -> float:
    """Return what a node's monotonic clock lacks to the seconds since 1970."""
    # A rank's first word carries the rank's own time of day, of when it began.
    between = [
        float(one["wall"]) - float(one["at"])
        for one in events
        if "wall" in one and one["t"] != "hello"
    ]
    return median(between) if between else 0.0


def _began(events: Sequence[Event]) -> float:
    told = [
        float(one["began"]) for one in events if one["t"] == "hello" and is_number(one.get("began"))
    ]
    return min([float(events[0]["at"]), *told])


def _end(events: Sequence[Event]) -> float:
    """Return when the verdict was made that was not taken back; without one, the last event."""
    verdict = None
    for event in events:
        if event["t"] in ("verdict", "taken back"):
            verdict = float(event["at"]) if event["t"] == "verdict" else None
    return float(events[-1]["at"]) if verdict is None else verdict


def _titles(run: KeptRun, nodes: Sequence[Sequence[Event]]) -> dict[int, str]:
    """Return titles by number: the verdict's, ours where the name is the same, else the name."""
    ours = {row.name: row.title for row in PIPELINE.table}
    titles = {
        number: ours.get(name, name)
        for events in nodes
        for name, number in numbers_of(events).items()
    }
    place = run.verdict.get("checkpoint")
    if place and place["number"] is not None:
        titles[place["number"]] = place["title"]
    return titles


# ---- what the verdict adds -----------------------------------------------------------------------


def _with_the_verdict(verdict: Mapping[str, Any], rows: dict[int, Row], length: float) -> list[Row]:
    """Return the rows with the hang, and with the wait of those that only wait for others."""
    if verdict.get("outcome") == "hang":
        ranks = verdict["ranks"]
        absent = {*ranks["never_started"]} - rows.keys()
        for number in absent:
            rows[number] = Row(number, "", (_hang("never started", None, 0.0, 0),))
        for number in ({*ranks["culprit"], *ranks["stuck"]} & rows.keys()) - absent:
            still = verdict["seconds"]["still"] if number in ranks["culprit"] else None
            rows[number] = _hung(rows[number], verdict, still, length)
        for number in {*ranks["waiting"]} - {*ranks["culprit"], *ranks["stuck"]}:
            if number in rows:
                rows[number] = _waits(rows[number], ranks["culprit"])
    return [rows[number] for number in sorted(rows)]


def _hung(row: Row, verdict: Mapping[str, Any], still: float | None, length: float) -> Row:
    if row.ended is not None:
        return row
    inside = _open(row)
    since = length - still if still is not None else 0.0
    start = min(max(since, row.last_word or 0.0), length)
    name = verdict["call"] or (inside[-1].name if inside else "")
    number = next((span.number for span in reversed(inside) if span.number is not None), None)
    return _plus(row, _hang(name, number, start, len(inside)))


def _hang(name: str, number: int | None, start: float, depth: int) -> Span:
    return Span("hang", name, name or "nothing moves", number, start, None, depth)


def _waits(row: Row, culprit: Sequence[int]) -> Row:
    inside = _open(row)
    if row.ended is not None or any(span.kind == "wait" for span in inside):
        return row
    name = f"for {of_ranks(culprit)}" if culprit else "for others"
    return _plus(row, Span("wait", name, name, None, row.last_word or 0.0, None, len(inside)))


def _open(row: Row) -> list[Span]:
    return [span for span in row.spans if span.end is None]


def _plus(row: Row, span: Span) -> Row:
    spans = sorted((*row.spans, span), key=lambda one: (one.start, one.depth))
    return replace(row, spans=tuple(spans))
