"""trace.json: a run in the Trace Event format, for https://ui.perfetto.dev and chrome://tracing.

A rank is a process, named by metadata. What it was at are slices, begun by "B" and ended by "E", on
a thread of their own: they nest, for the format has no others. What had not ended when the verdict
was made, the hang above all, has no "E": viewers draw it to the end, and say that it did not
finish. The looks, calls and the verdict are instants, training steps a counter.

The format is that of Google's document "Trace Event Format" (docs.google.com/document/d/
1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU). Times are microseconds since the first rank began.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..base.events import Bye, Call, Ended, Event, Hello, Overdue, Pulse, Said, TakenBack
from ..base.identity import RankId
from ..base.lazy_dataclass import dataclass
from ..base.typed_messages import is_rank
from ..base.words import format_ranks
from .run_reader.run import RecordedRun
from .run_reader.timeline import RankRow, Span, read_timeline, wall_clock_offset


def make_trace(run: RecordedRun) -> dict[str, Any]:
    """Return the run as the content of a trace file, ready for JSON. Nothing in it is redacted."""
    times = read_timeline(run)
    rows, moments = times.rows or _rows_from_verdict(run), _read_moments(run, times.began)
    hosts = {row.rank: row.host for row in rows}
    ranks = sorted({one.rank for one in moments if one.rank is not None} | hosts.keys())
    pids = _pids(ranks, moments)
    watch = max(pids.values(), default=0) + 1
    named = [
        event
        for at, rank in enumerate(ranks)
        for event in _name_process(rank, at, pids[rank], hosts.get(rank, ""))
    ]
    events = [event for row in rows for event in slice_events(row, pids[row.rank])]
    events += [event for one in moments for event in _moment_events(one, pids, watch)]
    events += _verdict(run, watch, times.length or max((one.at for one in moments), default=0.0))
    return {
        # In their order within one moment: a slice ends before the next begins.
        "traceEvents": [
            *named,
            *process_events(watch, "the watch", -1),
            metadata_event(watch, STEPS, "thread_name", name="words"),
            *sorted(events, key=lambda event: int(event["ts"])),
        ],
        "displayTimeUnit": "ms",
        "otherData": _other_data(run),
    }


def _pids(ranks: Sequence[RankId], moments: Iterable[_Moment]) -> dict[RankId, int]:
    """Return the number of each rank's process: its own pid; where machines share one, or one is
    not known, numbers from 1, for 0 is no process to the viewers.
    """
    known = {
        one.rank: pid
        for one in moments
        if one.rank is not None and is_rank(pid := _pid_of(one.what))
    }
    own = [known.get(rank, 0) for rank in ranks]
    is_usable = len(set(own)) == len(own) and min(own, default=0) > 0
    return dict(zip(ranks, own if is_usable else range(1, len(ranks) + 1), strict=True))


def _name_process(rank: RankId, at: int, pid: int, host: str) -> Iterator[TraceEvent]:
    order = rank if isinstance(rank, int) else _BEHIND_NUMBERS + at
    yield from process_events(pid, f"rank {rank}" + (f" on {host}" if host else ""), order)
    for thread, what in THREADS.items():
        yield metadata_event(pid, thread, "thread_name", name=what)
        yield metadata_event(pid, thread, "thread_sort_index", sort_index=thread)


def _other_data(run: RecordedRun) -> dict[str, Any]:
    return {
        "outcome": run.outcome,
        "command": " ".join(run.verdict.command) if run.verdict else "",
        "world_size": run.world_size,
        "versions": dict(run.verdict.versions) if run.verdict else {},
        "missing": list(run.missing),
    }


# ---- what was told -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Moment:
    """An event, or a look as evidence.json has it, and when: seconds since the first rank began."""

    at: float
    rank: RankId | None  # None: the watch itself
    what: Event | Mapping[str, Any]


def _pid_of(what: Event | Mapping[str, Any]) -> object:
    """Return the process that a rank names, or that was looked at."""
    if isinstance(what, Event):
        return what.pid if isinstance(what, Hello) else None
    return what.get("pid")


def _read_moments(run: RecordedRun, began: float | None) -> list[_Moment]:
    """Return all that every node has; `began`: when the first rank did, in seconds since 1970."""
    moments = []
    for part in run.everywhere:
        looks = list(_looks(part))
        zero = _first_moment(part.events, looks)
        if began is not None:
            zero = began - wall_clock_offset(part.events)
        moments += [_Moment(one.at - zero, one.rank, one) for one in part.events]
        moments += [_Moment(float(look["at"]) - zero, rank, look) for rank, look in looks]
    return moments


def _first_moment(
    events: Sequence[Event], looks: Sequence[tuple[RankId, Mapping[str, Any]]]
) -> float:
    """Return the first moment that a node knows of, on its own clock."""
    times = [one.at for one in events]
    times += [one.began for one in events if isinstance(one, Hello) and one.began]
    return float(min([*times, *(look["at"] for _, look in looks)], default=0.0))


def _looks(part: RecordedRun) -> Iterator[tuple[RankId, Mapping[str, Any]]]:
    for one in part.facts.ranks:
        for look in one.looks:
            yield one.rank, {"at": look.at, "state": look.state}


def _rows_from_verdict(run: RecordedRun) -> tuple[RankRow, ...]:
    """Return where ranks were found that never reported a step: `attach` looked at the job."""
    if not run.verdict:
        return ()
    ranks, call = run.verdict.ranks, run.verdict.call or "nothing moves"
    hang = Span("hang", call, call, None, 0.0, None, 0)
    wait = Span("wait", "others", "for others", None, 0.0, None, 0)
    hung = {*ranks.culprit, *ranks.stuck}
    found = dict.fromkeys(ranks.waiting, wait) | dict.fromkeys(hung, hang)
    return tuple(RankRow(rank, "", (found[rank],)) for rank in sorted(found))


# ---- instants and counters -----------------------------------------------------------------------


def _moment_events(one: _Moment, pids: Mapping[RankId, int], watch: int) -> Iterator[TraceEvent]:
    """Yield the events for one message; most of it is in the slices already."""
    what = one.what
    if one.rank is None:
        if isinstance(what, Said | TakenBack):
            text = what.text if isinstance(what, Said) else what.kind
            yield instant_event(watch, STEPS, one.at, text, "watch")
        return
    pid = pids[one.rank]
    if not isinstance(what, Event):
        yield instant_event(pid, LOOKS, one.at, "look", "watch", state=what.get("state"))
    elif isinstance(what, Pulse):
        yield counter_event(pid, one.at, "training step", what.step)
    elif isinstance(what, Call) and not what.call.startswith("import "):
        yield instant_event(pid, CALLS, one.at, what.call, "call")
    elif isinstance(what, Overdue):
        yield instant_event(pid, LOOKS, one.at, f"the clock ran out: {what.clock}", "watch")
    elif isinstance(what, Bye | Ended):
        error = what.error if isinstance(what, Bye) else None
        values = {"status": what.status, "error": error}
        yield instant_event(pid, CALLS, one.at, what.kind, "end", **values)


def _verdict(run: RecordedRun, watch: int, at: float) -> list[TraceEvent]:
    if not run.verdict:
        return []
    culprit, cause = run.verdict.ranks.culprit, run.verdict.cause
    name = run.outcome + (f" of {format_ranks(culprit)}" if culprit else "")
    values = {"call": run.verdict.call, "cause": cause.title if cause else None}
    return [instant_event(watch, STEPS, at, name, "verdict", **values)]


TraceEvent = dict[str, Any]

_BEHIND_NUMBERS = 1 << 24  # where viewers put ranks of unknown number
STEPS, CALLS, LOOKS = 1, 2, 3  # the threads of a rank
THREADS = {STEPS: "steps", CALLS: "calls", LOOKS: "looks"}


def microseconds(seconds: float) -> int:
    """Return a time as the format has it."""
    return max(round(seconds * 1e6), 0)


def process_events(pid: int, name: str, place: int) -> Iterator[TraceEvent]:
    """Yield what names a process, and places it among the others."""
    yield metadata_event(pid, 0, "process_name", name=name)
    yield metadata_event(pid, 0, "process_sort_index", sort_index=place)


def metadata_event(pid: int, tid: int, what: str, **arguments: Any) -> TraceEvent:
    """Return something that is so all the time."""
    return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": arguments}


def instant_event(
    pid: int, tid: int, at: float, name: str, cat: str, **arguments: Any
) -> TraceEvent:
    """Return something that happened `at` so many seconds; `arguments` without a value are left
    out.
    """
    given = {key: value for key, value in arguments.items() if value not in (None, "")}
    event = {"ph": "i", "s": "t", "pid": pid, "tid": tid, "ts": microseconds(at), "name": name}
    return {**event, "cat": cat, **({"args": given} if given else {})}


def counter_event(pid: int, at: float, name: str, value: float) -> TraceEvent:
    """Return how much of something there was from `at` so many seconds on."""
    return {
        "ph": "C",
        "pid": pid,
        "tid": STEPS,
        "ts": microseconds(at),
        "name": name,
        "args": {name: value},
    }


# Of trace-viewer's reserved colours (tracing/base/color_scheme.html); Perfetto has its own.
_COLOURS = {"hang": "terrible", "wait": "grey", "import": "thread_state_iowait"}


def slice_events(row: RankRow, pid: int) -> Iterator[TraceEvent]:
    """Yield begins and ends of a rank's spans in order, as those of the process `pid`: each lies
    within the one around it.
    """
    around: list[tuple[Span, int | None]] = []  # and when it ends; None: it did not
    for span in sorted(row.spans, key=lambda one: (one.start, one.depth)):
        start = microseconds(span.start)
        while around and _is_over(around[-1][1], start):
            yield _end(pid, around.pop()[1])
        ends = None if span.end is None else max(microseconds(span.end), start)
        outer = next((end for _, end in reversed(around) if end is not None), None)
        if outer is not None:
            ends = outer if ends is None else min(ends, outer)
        around.append((span, ends))
        yield _begin(pid, span, start)
    while around and around[-1][1] is not None:
        yield _end(pid, around.pop()[1])


def _is_over(end: int | None, now: int) -> bool:
    return end is not None and end <= now


def _begin(pid: int, span: Span, start: int) -> TraceEvent:
    number = "" if span.number is None or span.kind != "step" else f"{span.number} "
    name = {"hang": f"HANG: {span.title}", "wait": f"waits: {span.title}"}.get(span.kind)
    event: TraceEvent = {
        "ph": "B",
        "pid": pid,
        "tid": STEPS,
        "ts": start,
        "name": name or f"{number}{span.title}",
        "cat": span.kind,
        "args": {"name": span.name, "checkpoint": span.number},
    }
    if span.kind in _COLOURS:
        event["cname"] = _COLOURS[span.kind]
    return event


def _end(pid: int, at: int | None) -> TraceEvent:
    return {"ph": "E", "pid": pid, "tid": STEPS, "ts": at or 0}
