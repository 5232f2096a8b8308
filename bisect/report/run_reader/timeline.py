"""Where each rank was when, on one clock for all of them: rows of spans, made of the events of each
node and of the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from statistics import median
from typing import Literal

from ...base import events as told_events
from ...base.checkpoints import STARTUP
from ...base.events import Event, Hello, TakenBack
from ...base.identity import RankId
from ...base.lazy_dataclass import dataclass
from ...base.outcomes import STANDS_STILL
from ...base.rank_history import Stay, StayKind
from ...base.rank_state import NodeRanks
from ...base.verdict_facts import Verdict
from ...base.words import format_ranks
from .run import RecordedRun

Kind = StayKind | Literal["hang"]  # "hang": nothing moved any more, or the rank never started


@dataclass(frozen=True)
class Span:
    """What a rank was at, and when. Seconds since the first rank began."""

    kind: Kind
    name: str  # "wandb_logger", "process_group", "torch", "barrier after checkpoint 9", ...
    title: str  # for people: "WandbLogger ready"; the name where there is no other
    number: int | None  # of the checkpoint; None: it belongs to none
    start: float
    end: float | None  # None: it had not ended when the verdict was made
    depth: int  # how many spans of the same rank are around it


@dataclass(frozen=True)
class RankRow:
    """One rank."""

    rank: RankId
    host: str
    spans: tuple[Span, ...]  # by start, those around others first
    ended: float | None = None  # when it left, or its process ended; None: not before the verdict
    last_word: float | None = None  # when it last said anything


@dataclass(frozen=True)
class Timeline:
    """All ranks. Times are seconds since the first of them began."""

    rows: tuple[RankRow, ...] = ()  # by rank
    length: float = 0.0  # to the verdict; without one to the last event
    began: float | None = None  # the same moment as 0, in seconds since 1970
    titles: Mapping[int, str] = field(default_factory=dict)  # of the checkpoints, by number


def read_timeline(run: RecordedRun) -> Timeline:
    """Return where each rank was when; no rows where no rank reported it: `attach` finds a
    job that runs already.

    Each node has a monotonic clock of its own; they are brought together by what each node has for
    the time of day, so between nodes this is as good as those agree.
    """
    of_parts = [part.events for part in run.everywhere]
    nodes = [events for events in of_parts if any(one.rank is not None for one in events)]
    if not nodes:
        return Timeline()
    offsets = [wall_clock_offset(events) for events in nodes]
    began = min(_began(events) + offset for events, offset in zip(nodes, offsets, strict=True))
    ends = [_end(events) for events in nodes]
    ranks = [_fold(events, end) for events, end in zip(nodes, ends, strict=True)]
    titles = _titles(run, ranks)
    rows: dict[RankId, RankRow] = {}
    for members, offset in zip(ranks, offsets, strict=True):
        for row in _build_rows(members, began - offset, titles):
            rows.setdefault(row.rank, row)
    length = max(end + offset for end, offset in zip(ends, offsets, strict=True)) - began
    with_verdict = _add_verdict(run.verdict, rows, length)
    return Timeline(tuple(with_verdict), length, began if any(offsets) else None, titles)


def _fold(events: Sequence[Event], end: float) -> NodeRanks:
    """Return the ranks as they were at the `end`: what follows a verdict is the end of the job, by
    us.
    """
    members = NodeRanks(remembers=True)
    for event in events:
        if event.at <= end:
            members.apply(event)
    return members


def _build_rows(members: NodeRanks, zero: float, titles: Mapping[int, str]) -> list[RankRow]:
    """Return the ranks of a node; `zero` is when the first of all began, on the node's clock."""
    names = {number: name for name, number in members.numbers.items()}

    def span(stay: Stay) -> Span:
        name, title, number = _name_stay(stay, names, titles, members.numbers)
        start, end = max(stay.start - zero, 0.0), _after(stay.end, zero)
        return Span(stay.kind, name, title, number, start, end, stay.depth)

    return [
        RankRow(
            one.rank,
            one.host,
            tuple(map(span, one.stays.all())),
            _after(one.ended_at, zero),
            _after(one.spoke, zero),
        )
        for one in members
    ]


def _after(at: float | None, zero: float) -> float | None:
    return None if at is None else max(at - zero, 0.0)


def _name_stay(
    stay: Stay, names: Mapping[int, str], titles: Mapping[int, str], numbers: Mapping[str, int]
) -> tuple[str, str, int | None]:
    """Return the name, the title and the checkpoint's number of what a rank was in."""
    if stay.kind == "step" and stay.number is not None:
        name = names.get(stay.number, "")
        return name, titles.get(stay.number, name), stay.number
    if stay.kind == "own step":
        return stay.name, stay.title or stay.name, numbers.get(stay.checkpoint or "")
    if stay.kind == "wait" and stay.number is not None:
        name = f"barrier after checkpoint {stay.number}"
        return name, name, stay.number
    title = {"wait": f"for {stay.name}", "import": f"import {stay.name}"}.get(stay.kind)
    return stay.name, title or stay.name.replace("_", " "), stay.number


# ---- clocks --------------------------------------------------------------------------------------


def wall_clock_offset(events: Sequence[Event]) -> float:
    """Return what a node's monotonic clock lacks to the seconds since 1970."""
    # A rank's first word carries the rank's own time of day, of when it began.
    between = [
        one.wall - one.at for one in events if one.wall is not None and not isinstance(one, Hello)
    ]
    return median(between) if between else 0.0


def _began(events: Sequence[Event]) -> float:
    starts = [one.began for one in events if isinstance(one, Hello) and one.began]
    return min([events[0].at, *starts])


def _end(events: Sequence[Event]) -> float:
    """Return when the verdict was made that was not taken back; without one, the last event."""
    verdict = None
    for event in events:
        if isinstance(event, told_events.Verdict | TakenBack):
            verdict = event.at if isinstance(event, told_events.Verdict) else None
    return events[-1].at if verdict is None else verdict


def _titles(run: RecordedRun, nodes: Sequence[NodeRanks]) -> dict[int, str]:
    """Return titles by number: the verdict's, ours where the name is the same, else the name."""
    ours = {row.name: row.title for row in STARTUP}
    titles = {
        number: ours.get(name, name)
        for members in nodes
        for name, number in members.numbers.items()
    }
    place = run.verdict.checkpoint if run.verdict else None
    if place and place.number is not None:
        titles[place.number] = place.title
    return titles


# ---- what the verdict adds -----------------------------------------------------------------------


def _add_verdict(
    verdict: Verdict | None, rows: dict[RankId, RankRow], length: float
) -> list[RankRow]:
    """Return the rows with the hang, and with the wait of those that only wait for others."""
    if verdict and verdict.outcome in STANDS_STILL:
        ranks = verdict.ranks
        hung = {*ranks.culprit, *ranks.stuck}
        absent = {*ranks.never_started} - rows.keys()
        for number in absent:
            rows[number] = RankRow(number, "", (_hang_span("never started", None, 0.0, 0),))
        for number in (hung & rows.keys()) - absent:
            still = verdict.seconds.still if number in ranks.culprit else None
            rows[number] = _add_hang(rows[number], verdict, still, length)
        for number in {*ranks.waiting} - hung:
            if number in rows:
                rows[number] = _add_wait(rows[number], ranks.culprit)
    return [rows[number] for number in sorted(rows)]


def _add_hang(row: RankRow, verdict: Verdict, still: float | None, length: float) -> RankRow:
    if row.ended is not None:
        return row
    inside = _open_spans(row)
    since = length - still if still is not None else 0.0
    start = min(max(since, row.last_word or 0.0), length)
    name = verdict.call or (inside[-1].name if inside else "")
    number = next((span.number for span in reversed(inside) if span.number is not None), None)
    return _add_span(row, _hang_span(name, number, start, len(inside)))


def _hang_span(name: str, number: int | None, start: float, depth: int) -> Span:
    return Span("hang", name, name or "nothing moves", number, start, None, depth)


def _add_wait(row: RankRow, culprit: Sequence[RankId]) -> RankRow:
    inside = _open_spans(row)
    if row.ended is not None or any(span.kind == "wait" for span in inside):
        return row
    name = f"for {format_ranks(culprit)}" if culprit else "for others"
    return _add_span(row, Span("wait", name, name, None, row.last_word or 0.0, None, len(inside)))


def _open_spans(row: RankRow) -> list[Span]:
    return [span for span in row.spans if span.end is None]


def _add_span(row: RankRow, span: Span) -> RankRow:
    spans = sorted((*row.spans, span), key=lambda one: (one.start, one.depth))
    return replace(row, spans=tuple(spans))
