"""The events of the Trace Event format, each in its form: names, instants, counters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Event = dict[str, Any]

STEPS, CALLS, LOOKS = 1, 2, 3  # the threads of a rank
THREADS = {STEPS: "steps", CALLS: "calls", LOOKS: "looks"}


def microseconds(seconds: float) -> int:
    """Return a time as the format has it."""
    return max(round(seconds * 1e6), 0)


def process(pid: int, name: str, place: int) -> Iterator[Event]:
    """Yield what names a process, and places it among the others."""
    yield metadata(pid, 0, "process_name", name=name)
    yield metadata(pid, 0, "process_sort_index", sort_index=place)


def metadata(pid: int, tid: int, what: str, **arguments: Any) -> Event:
    """Return something that is so all the time."""
    return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": arguments}


def instant(pid: int, tid: int, at: float, name: str, cat: str, **arguments: Any) -> Event:
    """Return something that happened `at` so many seconds; `arguments` without a value are left
    out.
    """
    told = {key: value for key, value in arguments.items() if value not in (None, "")}
    event = {"ph": "i", "s": "t", "pid": pid, "tid": tid, "ts": microseconds(at), "name": name}
    return {**event, "cat": cat, **({"args": told} if told else {})}


def counter(pid: int, at: float, name: str, value: float) -> Event:
    """Return how much of something there was from `at` so many seconds on."""
    return {
        "ph": "C",
        "pid": pid,
        "tid": STEPS,
        "ts": microseconds(at),
        "name": name,
        "args": {name: value},
    }
