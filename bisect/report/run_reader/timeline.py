"""Where each rank was when, on one clock for all of them: rows of spans, made of the events of each
node and of the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Literal

from ...base.facts import Verdict
from ...base.identity import RankId
from ...base.startup_table import STARTUP
from ...base.words import format_ranks
from .folder_files import is_number, is_rank, number_field, text_field
from .run import RecordedRun

# "step": of a pipeline, numbered; "own step": of a script of the user's own; "phase": of a step;
# "import": of a heavy module; "wait": for other ranks; "hang": nothing moved any more, or the rank
# never started; "training": past the first training steps of a script of the user's own.
Kind = Literal["step", "own step", "phase", "import", "wait", "hang", "training"]


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
class Row:
    """One rank."""

    rank: RankId
    host: str
    spans: tuple[Span, ...]  # by start, those around others first
    ended: float | None = None  # when it left, or its process ended; None: not before the verdict
    last_word: float | None = None  # when it last said anything


Event = Mapping[str, Any]
MOST_OPEN = 100  # steps inside one another


@dataclass
class _Open:
    kind: Kind
    name: str
    title: str
    number: int | None
    start: float
    key: tuple[object, ...] = ()


@dataclass
class _Rank:
    """One rank while its events are gone through."""

    host: str = ""
    pid: int | None = None
    open: list[_Open] = field(default_factory=list)  # the innermost last
    importing: _Open | None = None  # announced, and not done
    spans: list[Span] = field(default_factory=list)
    ended: float | None = None
    last_word: float | None = None

    def begin(self, one: _Open) -> None:
        if len(self.open) < MOST_OPEN:
            self.open.append(one)

    def close(self, at: float, until: Callable[[_Open], bool]) -> None:
        """End the outermost open span for which `until` is true, and all inside it."""
        found = next((i for i, one in enumerate(self.open) if until(one)), None)
        if found is not None:
            for depth in range(found, len(self.open)):
                self.spans.append(_span(self.open[depth], at, depth))
            del self.open[found:]

    def row(self, rank: int) -> Row:
        spans = [*self.spans, *(_span(one, None, i) for i, one in enumerate(self.open))]
        if self.importing is not None:
            spans.append(_span(self.importing, None, len(self.open)))
        spans.sort(key=lambda span: (span.start, span.depth))
        return Row(rank, self.host, tuple(spans), self.ended, self.last_word)


def _span(one: _Open, end: float | None, depth: int) -> Span:
    return Span(one.kind, one.name, one.title, one.number, one.start, end, depth)


class RowBuilder:
    """All ranks of one node."""

    def __init__(self, titles: Mapping[int, str], numbers: Mapping[str, int]) -> None:
        """`titles` of the checkpoints by number, `numbers` by name."""
        self._titles = titles
        self._numbers = dict(numbers)
        self._names = {number: name for name, number in numbers.items()}
        self._ranks: dict[int, _Rank] = {}
        self._done: set[str] = set()  # what rank 0 did for the others

    def take(self, event: Event, at: float) -> None:
        """Take in one event; `at`: when it happened, on the clock of the rows."""
        if event["t"] == "opened":
            self._opened(event, at)
        if "rank" not in event:
            return
        if event["t"] == "hello":
            self._hello(event, at)
        rank = self._ranks.setdefault(int(event["rank"]), _Rank())
        if event["t"] not in ("ended", "overdue"):  # the monitor's own words on it
            rank.last_word = at
        handler = getattr(self, f"_on_{event['t']}", None)
        if handler is not None:
            rank.importing = None  # it says something else by now
            handler(rank, event, at)

    def rows(self) -> list[Row]:
        """Return the ranks, by number."""
        return [self._ranks[rank].row(rank) for rank in sorted(self._ranks)]

    # ---- what happens to all --------------------------------------------------------------------

    def _hello(self, event: Event, at: float) -> None:
        number, pid = int(event["rank"]), event.get("pid")
        before = event.get("instead_of")
        if is_rank(before) and before in self._ranks and self._ranks[before].pid == pid:
            self._ranks[number] = self._ranks.pop(before)  # it knows better now which rank it is
        rank = self._ranks.setdefault(number, _Rank())
        if rank.pid != pid:  # another process is this rank now
            rank.close(at, lambda _: True)
            rank.importing = rank.ended = None
        rank.host, rank.pid = text_field(event, "host"), pid

    def _opened(self, event: Event, at: float) -> None:
        for rank in self._ranks.values():
            rank.close(at, lambda one: one.kind == "wait" and one.number == event.get("n"))

    # ---- what a rank says -----------------------------------------------------------------------

    def _on_enter(self, rank: _Rank, event: Event, at: float) -> None:
        rank.close(at, lambda _: True)
        number = number_field(event, "n")
        if number is not None:
            name = self._names.get(number, "")
            rank.begin(_Open("step", name, self._titles.get(number, name), number, at))

    def _on_phase(self, rank: _Rank, event: Event, at: float) -> None:
        rank.close(at, lambda one: one.kind == "phase")
        name = text_field(event, "name")
        rank.begin(_Open("phase", name, name.replace("_", " "), number_field(event, "n"), at))

    def _on_call(self, rank: _Rank, event: Event, at: float) -> None:
        words = text_field(event, "call").split(" ", 1)
        if words[0] == "import" and len(words) == 2:
            rank.importing = _Open("import", words[1], f"import {words[1]}", None, at)

    def _on_import(self, rank: _Rank, event: Event, at: float) -> None:
        took, name = event.get("seconds"), text_field(event, "module")
        if is_number(took):
            one = _Open("import", name, f"import {name}", None, at - max(0.0, float(took)))
            rank.spans.append(_import_span(rank, one, at))

    def _on_reached(self, rank: _Rank, event: Event, at: float) -> None:
        rank.close(at, lambda one: one.kind in ("step", "phase"))

    def _on_arrive(self, rank: _Rank, event: Event, at: float) -> None:
        number = number_field(event, "n")
        if event.get("held", True) and number is not None:
            name = f"barrier after checkpoint {number}"
            rank.begin(_Open("wait", name, name, number, at))

    def _on_await(self, rank: _Rank, event: Event, at: float) -> None:
        what = text_field(event, "what")
        if what not in self._done:
            rank.begin(_Open("wait", what, f"for {what}", None, at, (what,)))

    def _on_did(self, rank: _Rank, event: Event, at: float) -> None:
        what = text_field(event, "what")
        self._done.add(what)
        for one in self._ranks.values():
            one.close(at, lambda span: span.kind == "wait" and span.key == (what,))

    def _on_begin(self, rank: _Rank, event: Event, at: float) -> None:
        name = text_field(event, "step")
        title = text_field(event, "title") or name
        number = self._numbers.get(text_field(event, "checkpoint"))
        rank.begin(_Open("own step", name, title, number, at, _step_key(event)))

    def _on_end(self, rank: _Rank, event: Event, at: float) -> None:
        rank.close(at, lambda one: one.kind == "own step" and one.key == _step_key(event))

    def _on_pulse(self, rank: _Rank, event: Event, at: float) -> None:
        # In a pipeline the phases say as much.
        if not any(one.kind in ("step", "training") for one in rank.open):
            rank.begin(_Open("training", "training", "training", None, at))

    _on_quiet = _on_pulse

    def _on_finished(self, rank: _Rank, event: Event, at: float) -> None:
        rank.close(at, lambda _: True)

    def _on_bye(self, rank: _Rank, event: Event, at: float) -> None:
        self._on_finished(rank, event, at)
        rank.ended = at

    def _on_ended(self, rank: _Rank, event: Event, at: float) -> None:
        self._on_finished(rank, event, at)
        rank.ended = at if rank.ended is None else rank.ended


def _import_span(rank: _Rank, one: _Open, at: float) -> Span:
    """Return an import as part of what it lies in: told of after the step that it is."""
    last = rank.spans[-1] if rank.spans else None
    ended = last.end if last is not None and last.kind == "own step" else None
    if last is not None and ended is not None and not rank.open and ended > one.start:
        one.start = max(one.start, last.start)
        return _span(one, ended, last.depth + 1)
    one.start = max(one.start, rank.open[-1].start if rank.open else 0.0)
    return _span(one, at, len(rank.open))


def _step_key(event: Event) -> tuple[object, ...]:
    return (str(event.get("step")), str(event.get("k")))


def checkpoint_numbers(events: Iterable[Event]) -> dict[str, int]:
    """Return the numbers of the checkpoints by name, as the monitor noted them."""
    tables = [event.get("numbers") for event in events if event["t"] == "table"]
    first = tables[0] if tables and isinstance(tables[0], dict) else {}
    return {name: number for name, number in first.items() if is_rank(number)}


@dataclass(frozen=True)
class Timeline:
    """All ranks. Times are seconds since the first of them began."""

    rows: tuple[Row, ...] = ()  # by rank
    length: float = 0.0  # to the verdict; without one to the last event
    began: float | None = None  # the same moment as 0, in seconds since 1970
    titles: Mapping[int, str] = field(default_factory=dict)  # of the checkpoints, by number


def read_timeline(run: RecordedRun) -> Timeline:
    """Return where each rank was when; no rows where nobody told it: `attach` finds a job that
    runs already.

    Each node has a monotonic clock of its own; they are brought together by what each node has for
    the time of day, so between nodes this is as good as those agree.
    """
    nodes = [part.events for part in run.everywhere if any("rank" in one for one in part.events)]
    if not nodes:
        return Timeline()
    offsets = [wall_clock_offset(events) for events in nodes]
    began = min(_began(events) + offset for events, offset in zip(nodes, offsets, strict=True))
    ends = [_end(events) + offset for events, offset in zip(nodes, offsets, strict=True)]
    titles = _titles(run, nodes)
    rows: dict[RankId, Row] = {}
    for events, offset, end in zip(nodes, offsets, ends, strict=True):
        for row in _rows(events, began - offset, end - began, titles):
            rows.setdefault(row.rank, row)
    length = max(ends) - began
    told = _add_verdict(run.verdict, rows, length)
    return Timeline(tuple(told), length, began if any(offsets) else None, titles)


def _rows(events: Sequence[Event], zero: float, end: float, titles: Mapping[int, str]) -> list[Row]:
    rows = RowBuilder(titles, checkpoint_numbers(events))
    for event in events:
        at = float(event["at"]) - zero
        if at <= end:  # what follows the verdict is the end of the job, by us
            rows.take(event, max(at, 0.0))
    return rows.rows()


# ---- clocks --------------------------------------------------------------------------------------


def wall_clock_offset(events: Sequence[Event]) -> float:
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


def _titles(run: RecordedRun, nodes: Sequence[Sequence[Event]]) -> dict[int, str]:
    """Return titles by number: the verdict's, ours where the name is the same, else the name."""
    ours = {row.name: row.title for row in STARTUP}
    titles = {
        number: ours.get(name, name)
        for events in nodes
        for name, number in checkpoint_numbers(events).items()
    }
    place = run.verdict.checkpoint if run.verdict else None
    if place and place.number is not None:
        titles[place.number] = place.title
    return titles


# ---- what the verdict adds -----------------------------------------------------------------------


def _add_verdict(verdict: Verdict | None, rows: dict[RankId, Row], length: float) -> list[Row]:
    """Return the rows with the hang, and with the wait of those that only wait for others."""
    if verdict and verdict.outcome == "hang":
        ranks = verdict.ranks
        hung = {*ranks.culprit, *ranks.stuck}
        absent = {*ranks.never_started} - rows.keys()
        for number in absent:
            rows[number] = Row(number, "", (_hang_span("never started", None, 0.0, 0),))
        for number in (hung & rows.keys()) - absent:
            still = verdict.seconds.still if number in ranks.culprit else None
            rows[number] = _add_hang(rows[number], verdict, still, length)
        for number in {*ranks.waiting} - hung:
            if number in rows:
                rows[number] = _add_wait(rows[number], ranks.culprit)
    return [rows[number] for number in sorted(rows)]


def _add_hang(row: Row, verdict: Verdict, still: float | None, length: float) -> Row:
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


def _add_wait(row: Row, culprit: Sequence[RankId]) -> Row:
    inside = _open_spans(row)
    if row.ended is not None or any(span.kind == "wait" for span in inside):
        return row
    name = f"for {format_ranks(culprit)}" if culprit else "for others"
    return _add_span(row, Span("wait", name, name, None, row.last_word or 0.0, None, len(inside)))


def _open_spans(row: Row) -> list[Span]:
    return [span for span in row.spans if span.end is None]


def _add_span(row: Row, span: Span) -> Row:
    spans = sorted((*row.spans, span), key=lambda one: (one.start, one.depth))
    return replace(row, spans=tuple(spans))
