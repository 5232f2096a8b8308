"""A comparison in words, the most telling first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..words import counted, cut, of_ranks, one_line, seconds
from .found import Comparison, Difference, Start, TimeDifference, Took
from .noise import SECONDS, SHARE

LEAST_LINES = 12  # shown however small the terminal is
_LONGEST_VALUE = 60  # characters, where there is no terminal to say how many fit
_TITLE = 34  # characters of a step
_LABELS = {"environment": "variables"}


def comparison_lines(found: Comparison, width: int | None, height: int | None) -> list[str]:
    """Return the lines; on a terminal of that many columns and lines no more than fit on it."""
    head = [*_start("A", found.a), *_start("B", found.b)]
    if found.is_same:
        lines = [*head, f"same      nothing differs: {_same(found)}"]
        return [cut(line, width) for line in [*lines, *_missing(found)]]
    body = [*_settings(found.settings, width), *_times(found.times)]
    tail = [f"same      {_same(found)}", *_missing(found)]
    if height is not None:
        room = max(height - 1, LEAST_LINES) - len(head) - len(tail)
        if len(body) > room:
            left_out = len(body) - room + 1
            body = [*body[: room - 1], f"          and {counted(left_out, 'line')} more: --json"]
    return [cut(line, width) for line in [*head, *body, *tail]]


def _start(name: str, start: Start) -> Iterator[str]:
    took = "" if start.seconds is None else f", {seconds(start.seconds)}"
    size = f"{counted(start.world_size, 'rank')}{took}"
    yield f"{_label(name)}{one_line(start.what)}  {size}  {one_line(start.folder)}"
    if start.cause:
        yield f"          cause: {one_line(start.cause)}"


# ---- settings ------------------------------------------------------------------------------------


def _settings(found: Sequence[Difference], width: int | None) -> Iterator[str]:
    before = ""
    for one in found:
        label = _LABELS.get(one.topic, one.topic) if one.topic != before else ""
        before = one.topic
        name = "" if one.name == one.topic else f"{one.name}  "
        who = f"  ({of_ranks(one.ranks)})" if one.ranks else ""
        room = (
            _LONGEST_VALUE if width is None else max((width - 20 - len(name) - len(who)) // 2, 12)
        )
        values = _values(one, room)
        yield f"{_label(label)}{one_line(name)}{'  ' * bool(name)}{values}{who}"


def _values(one: Difference, room: int) -> str:
    a, b = (cut(one_line(value), room) for value in (one.a, one.b))
    if one.topic == "command" and not (a and b):
        return f"only in {'A' if a else 'B'}: {a or b}"
    return f"A {a or '(not set)'}  B {b or '(not set)'}"


# ---- times ---------------------------------------------------------------------------------------


def _times(found: Sequence[TimeDifference]) -> Iterator[str]:
    if not found:
        return
    names = [_name(one) for one in found]
    wide = min(max(map(len, names)), _TITLE)
    took = [(_took(one.a), _took(one.b)) for one in found]
    columns = [max(len(pair[i]) for pair in took) for i in (0, 1)]
    for number, (one, name, (a, b)) in enumerate(zip(found, names, took, strict=True)):
        both = one.a.was_ended and one.b.was_ended
        more = f"  {one.seconds:+.1f} s" if both else ""
        who = f"  (most: {of_ranks(one.ranks)})" if one.ranks else ""
        label = _label("" if number else "times")
        columns_of = f"A {a:>{columns[0]}}  B {b:>{columns[1]}}"
        yield f"{label}{cut(name, wide):<{wide}}  {columns_of}{more}{who}"


def _name(one: TimeDifference) -> str:
    number = "" if one.number is None else f"{one.number} "
    return f"{'  ' * one.depth}{number}{one_line(one.title)}"


def _took(one: Took) -> str:
    if one.unended is not None:
        who = f"{of_ranks(one.stopped)}: " if one.seconds is not None else ""
        return f"{who}not ended after {seconds(one.unended)}"
    return "not done" if one.seconds is None else seconds(one.seconds)


# ---- the rest ------------------------------------------------------------------------------------


def _same(found: Comparison) -> str:
    words = {"environment": "variable", "versions": "version", "steps": "step"}
    parts = []
    for topic, count in found.same.items():
        parts.append(counted(count, words[topic]) if topic in words else topic)
    times = f" (steps: within {SECONDS:g} s or {SHARE:.0%})" if "steps" in found.same else ""
    return (", ".join(parts) or "nothing could be compared") + times


def _missing(found: Comparison) -> list[str]:
    return [f"{_label('' if i else 'unknown')}{one_line(s)}" for i, s in enumerate(found.missing)]


def _label(label: str) -> str:
    return f"{label:<10}"
