"""What the events of one node make of its ranks' time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .event_lines import is_number, is_rank
from .fields import text, whole
from .span import Kind, Row, Span

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


class Rows:
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
        rank.host, rank.pid = text(event, "host"), pid

    def _opened(self, event: Event, at: float) -> None:
        for rank in self._ranks.values():
            rank.close(at, lambda one: one.kind == "wait" and one.number == event.get("n"))

    # ---- what a rank says -----------------------------------------------------------------------

    def _on_enter(self, rank: _Rank, event: Event, at: float) -> None:
        rank.close(at, lambda _: True)
        number = whole(event, "n")
        if number is not None:
            name = self._names.get(number, "")
            rank.begin(_Open("step", name, self._titles.get(number, name), number, at))

    def _on_phase(self, rank: _Rank, event: Event, at: float) -> None:
        rank.close(at, lambda one: one.kind == "phase")
        name = text(event, "name")
        rank.begin(_Open("phase", name, name.replace("_", " "), whole(event, "n"), at))

    def _on_call(self, rank: _Rank, event: Event, at: float) -> None:
        words = text(event, "call").split(" ", 1)
        if words[0] == "import" and len(words) == 2:
            rank.importing = _Open("import", words[1], f"import {words[1]}", None, at)

    def _on_import(self, rank: _Rank, event: Event, at: float) -> None:
        took, name = event.get("seconds"), text(event, "module")
        if is_number(took):
            one = _Open("import", name, f"import {name}", None, at - max(0.0, float(took)))
            rank.spans.append(_inside(rank, one, at))

    def _on_reached(self, rank: _Rank, event: Event, at: float) -> None:
        rank.close(at, lambda one: one.kind in ("step", "phase"))

    def _on_arrive(self, rank: _Rank, event: Event, at: float) -> None:
        number = whole(event, "n")
        if event.get("held", True) and number is not None:
            name = f"barrier after checkpoint {number}"
            rank.begin(_Open("wait", name, name, number, at))

    def _on_await(self, rank: _Rank, event: Event, at: float) -> None:
        what = text(event, "what")
        if what not in self._done:
            rank.begin(_Open("wait", what, f"for {what}", None, at, (what,)))

    def _on_did(self, rank: _Rank, event: Event, at: float) -> None:
        what = text(event, "what")
        self._done.add(what)
        for one in self._ranks.values():
            one.close(at, lambda span: span.kind == "wait" and span.key == (what,))

    def _on_begin(self, rank: _Rank, event: Event, at: float) -> None:
        name = text(event, "step")
        title = text(event, "title") or name
        number = self._numbers.get(text(event, "checkpoint"))
        rank.begin(_Open("own step", name, title, number, at, _key(event)))

    def _on_end(self, rank: _Rank, event: Event, at: float) -> None:
        rank.close(at, lambda one: one.kind == "own step" and one.key == _key(event))

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


def _inside(rank: _Rank, one: _Open, at: float) -> Span:
    """Return an import as part of what it lies in: told of after the step that it is."""
    last = rank.spans[-1] if rank.spans else None
    ended = last.end if last is not None and last.kind == "own step" else None
    if last is not None and ended is not None and not rank.open and ended > one.start:
        one.start = max(one.start, last.start)
        return _span(one, ended, last.depth + 1)
    one.start = max(one.start, rank.open[-1].start if rank.open else 0.0)
    return _span(one, at, len(rank.open))


def _key(event: Event) -> tuple[object, ...]:
    return (str(event.get("step")), str(event.get("k")))


def numbers_of(events: Iterable[Event]) -> dict[str, int]:
    """Return the numbers of the checkpoints by name, as the monitor noted them."""
    tables = [event.get("numbers") for event in events if event["t"] == "table"]
    first = tables[0] if tables and isinstance(tables[0], dict) else {}
    return {name: number for name, number in first.items() if is_rank(number)}
