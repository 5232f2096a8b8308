"""events.jsonl read back: a file that was appended to, and may end in the middle of a line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeGuard

from .files import Files
from .shape import LARGEST, decoded

FILE = "events.jsonl"
FIRST, LAST = 48 << 20, 16 << 20  # bytes: of a long run the beginning and the end
LONGEST = 1 << 20  # bytes of a line


def events_of(files: Files) -> tuple[dict[str, Any], ...]:
    """Return the events by when they happened. What is no event is left out, and counted."""
    found = files.both_ends(FILE, FIRST, LAST)
    if found is None:
        return ()
    first, last = found
    lines = first.splitlines()
    # The last line of a file need not be whole: it may be written this moment.
    cut_short = bool(last) or not first.endswith(b"\n")
    if last:
        lines = [*lines[:-1], *last.splitlines()[1:]]
        cut_short = not last.endswith(b"\n")
    events = [_event(line) for line in lines if line.strip()]
    wrong = sum(event is None for event in events)
    wrong -= cut_short and bool(events) and events[-1] is None
    if wrong:
        files.say(f"{FILE}: {wrong} of {len(events)} lines are no events")
    return tuple(sorted(_known(events), key=lambda event: float(event["at"])))


def _known(events: Iterable[dict[str, Any] | None]) -> list[dict[str, Any]]:
    return [event for event in events if event is not None]


def _event(line: bytes) -> dict[str, Any] | None:
    if len(line) > LONGEST:
        return None
    try:
        event = decoded(line)
    except ValueError:
        return None
    if not isinstance(event, dict) or not isinstance(event.get("t"), str):
        return None
    fits = is_number(event.get("at")) and is_number(event.get("wall", 0))
    fits = fits and is_rank(event.get("rank", 0))
    return event if fits else None


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value of JSON is a number to reckon with."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def is_rank(value: object) -> TypeGuard[int]:
    """Return whether a value of JSON may be a rank's number."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 24
