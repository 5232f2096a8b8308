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
from dataclasses import dataclass
from typing import Any

from .kept.event_lines import is_number, is_rank
from .kept.fields import objects
from .kept.run import KeptRun
from .kept.span import Row, Span
from .kept.timeline import timeline, to_the_time_of_day
from .trace_form import (
    CALLS,
    LOOKS,
    STEPS,
    THREADS,
    Event,
    counter,
    instant,
    metadata,
    process,
)
from .trace_slices import slices
from .words import of_ranks


def trace(run: KeptRun) -> dict[str, Any]:
    """Return the run as the content of a trace file, ready for JSON. Nothing in it is redacted."""
    times = timeline(run)
    rows, told = times.rows or _found(run), _told(run, times.began)
    hosts = {row.rank: row.host for row in rows}
    ranks = sorted({one.rank for one in told if one.rank is not None} | hosts.keys())
    pids = _pids(ranks, told)
    watch = max(pids.values(), default=0) + 1
    named = [event for rank in ranks for event in _names(rank, pids[rank], hosts.get(rank, ""))]
    events = [event for row in rows for event in slices(row, pids[row.rank])]
    events += [event for one in told for event in _of(one, pids, watch)]
    events += _verdict(run, watch, times.length or max((one.at for one in told), default=0.0))
    return {
        # In their order within one moment: a slice ends before the next begins.
        "traceEvents": [
            *named,
            *process(watch, "the watch", -1),
            metadata(watch, STEPS, "thread_name", name="words"),
            *sorted(events, key=lambda event: int(event["ts"])),
        ],
        "displayTimeUnit": "ms",
        "otherData": _about(run),
    }


def _pids(ranks: Sequence[int], told: Iterable[_Told]) -> dict[int, int]:
    """Return the number of each rank's process: its own pid; where machines share one, or one is
    not known, numbers from 1, for 0 is no process to the viewers.
    """
    known = {
        one.rank: pid
        for one in told
        if one.rank is not None
        and one.kind in ("hello", "look")
        and is_rank(pid := one.what.get("pid"))
    }
    own = [known.get(rank, 0) for rank in ranks]
    is_usable = len(set(own)) == len(own) and min(own, default=0) > 0
    return dict(zip(ranks, own if is_usable else range(1, len(ranks) + 1), strict=True))


def _names(rank: int, pid: int, host: str) -> Iterator[Event]:
    yield from process(pid, f"rank {rank}" + (f" on {host}" if host else ""), rank)
    for thread, what in THREADS.items():
        yield metadata(pid, thread, "thread_name", name=what)
        yield metadata(pid, thread, "thread_sort_index", sort_index=thread)


def _about(run: KeptRun) -> dict[str, Any]:
    return {
        "outcome": run.outcome,
        "command": " ".join(map(str, run.verdict.get("command", ()))),
        "world_size": run.world_size,
        "versions": dict(run.verdict.get("versions", {})),
        "missing": list(run.missing),
    }


# ---- what was told -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Told:
    """An event, or a look, and when: seconds since the first rank began."""

    at: float
    rank: int | None  # None: the watch itself
    kind: str
    what: Mapping[str, Any]


def _told(run: KeptRun, began: float | None) -> list[_Told]:
    """Return all that every node has; `began`: when the first rank did, in seconds since 1970."""
    told = []
    for part in run.everywhere:
        found = [(one, one.get("rank"), str(one["t"])) for one in part.events]
        found += [(look, rank, "look") for rank, look in _looks(part)]
        zero = _first([one for one, _, _ in found])
        if began is not None:
            zero = began - to_the_time_of_day(part.events)
        told += [_Told(float(one["at"]) - zero, rank, kind, one) for one, rank, kind in found]
    return told


def _first(found: Iterable[Mapping[str, Any]]) -> float:
    """Return the first moment that a node knows of, on its own clock."""
    times = [at for one in found for at in (one["at"], one.get("began")) if is_number(at)]
    return float(min(times, default=0.0))


def _looks(part: KeptRun) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for one in objects(part.evidence, "ranks"):
        for look in objects(one, "looks") if is_rank(one.get("rank")) else ():
            if is_number(look.get("at")):
                yield one["rank"], look


def _found(run: KeptRun) -> tuple[Row, ...]:
    """Return what ranks were found at that never told of a step: the job was attached to."""
    if not run.verdict:
        return ()
    ranks, call = run.verdict["ranks"], run.verdict["call"] or "nothing moves"
    hang = Span("hang", call, call, None, 0.0, None, 0)
    wait = Span("wait", "others", "for others", None, 0.0, None, 0)
    hung = {*ranks["culprit"], *ranks["stuck"]}
    found = dict.fromkeys(ranks["waiting"], wait) | dict.fromkeys(hung, hang)
    return tuple(Row(rank, "", (found[rank],)) for rank in sorted(found))


# ---- instants and counters -----------------------------------------------------------------------


def _of(one: _Told, pids: Mapping[int, int], watch: int) -> Iterator[Event]:
    """Yield what becomes of something that was told; most of it is in the slices already."""
    what = one.what
    if one.rank is None:
        if one.kind in ("said", "taken back"):
            yield instant(watch, STEPS, one.at, str(what.get("text", one.kind)), "watch")
        return
    pid = pids[one.rank]
    if one.kind == "pulse" and is_number(what.get("step")):
        yield counter(pid, one.at, "training step", what["step"])
    elif one.kind == "call" and not str(what.get("call", "")).startswith("import "):
        yield instant(pid, CALLS, one.at, str(what.get("call", "")), "call")
    elif one.kind == "look":
        yield instant(pid, LOOKS, one.at, "look", "watch", state=what.get("state"))
    elif one.kind == "overdue":
        yield instant(pid, LOOKS, one.at, f"the clock ran out: {what.get('clock')}", "watch")
    elif one.kind in ("bye", "ended"):
        told = {"status": what.get("status"), "error": what.get("error")}
        yield instant(pid, CALLS, one.at, one.kind, "end", **told)


def _verdict(run: KeptRun, watch: int, at: float) -> list[Event]:
    if not run.verdict:
        return []
    culprit, cause = run.verdict["ranks"]["culprit"], run.verdict["cause"]
    name = run.outcome + (f" of {of_ranks(culprit)}" if culprit else "")
    told = {"call": run.verdict["call"], "cause": cause["title"] if cause else None}
    return [instant(watch, STEPS, at, name, "verdict", **told)]
