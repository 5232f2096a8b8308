"""What ranks were at, as slices of a trace: begun by "B", ended by "E", nested."""

from __future__ import annotations

from collections.abc import Iterator

from .kept.span import Row, Span
from .trace_form import STEPS, Event, microseconds

# Of trace-viewer's reserved colours (tracing/base/color_scheme.html); Perfetto has its own.
_COLOURS = {"hang": "terrible", "wait": "grey", "import": "thread_state_iowait"}


def slices(row: Row, pid: int) -> Iterator[Event]:
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


def _begin(pid: int, span: Span, start: int) -> Event:
    number = "" if span.number is None or span.kind != "step" else f"{span.number} "
    name = {"hang": f"HANG: {span.title}", "wait": f"waits: {span.title}"}.get(span.kind)
    event: Event = {
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


def _end(pid: int, at: int | None) -> Event:
    return {"ph": "E", "pid": pid, "tid": STEPS, "ts": at or 0}
