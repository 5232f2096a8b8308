"""Two runs compared, usually one that went well and one that did not; and the comparison in words,
the most telling difference first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..base.verdict_facts import Verdict
from ..base.words import cut_line, format_count, format_ranks, format_seconds, join_lines
from .run_differences import (
    NOISE_SECONDS,
    NOISE_SHARE,
    Comparison,
    SettingDifference,
    Start,
    StepResult,
    TimeDifference,
    find_launch_differences,
    find_setting_differences,
    find_time_differences,
)
from .run_reader.run import RecordedRun
from .run_reader.timeline import Timeline, read_timeline


def compare_runs(a: RecordedRun, b: RecordedRun) -> Comparison:
    """Return what two runs differ in beyond noise. Nothing in it is redacted."""
    ones, others = read_timeline(a), read_timeline(b)
    well = (a.outcome == "ok", b.outcome == "ok")
    times, same_times = find_time_differences(ones, others, well)
    settings = find_setting_differences(a, b)
    same = dict(settings.same)
    if same_times:
        same["steps"] = same_times
    missing = [
        f"{name}: {sentence}" for name, run in (("A", a), ("B", b)) for sentence in run.missing
    ]
    missing += [
        f"{name}: no rank told of its steps, so times are not compared"
        for name, times_of in (("A", ones), ("B", others))
        if not times_of.rows
    ]
    if ones.rows and others.rows and not (times or same_times):
        missing.append("the two have no step in common, so times are not compared")
    if settings.hidden:
        missing.append(f"masked by the ranks, so nobody can tell: {', '.join(settings.hidden)}")
    return Comparison(
        a=_describe_start(a, ones),
        b=_describe_start(b, others),
        times=tuple(times),
        settings=(*find_launch_differences(a, b), *settings.differing),
        same=same,
        missing=tuple(missing),
    )


def _describe_start(run: RecordedRun, times: Timeline) -> Start:
    verdict = run.verdict
    return Start(
        folder=str(run.folder),
        outcome=run.outcome,
        what=_describe_end(verdict),
        cause=verdict.cause.title if verdict and verdict.cause else "",
        world_size=run.world_size or len(times.rows),
        seconds=verdict.seconds.total if verdict else (times.length if times.rows else None),
    )


def _describe_end(verdict: Verdict | None) -> str:
    """Return how it went: "hang at 9 WandbLogger ready: rank 1 in wandb.init"."""
    if not verdict:
        return "no verdict"
    place, culprit = verdict.checkpoint, verdict.ranks.culprit
    at = phase = ""
    if place:
        at = f" at {'' if place.number is None else f'{place.number} '}{place.title}"
        phase = f" ({place.phase.replace('_', ' ')})" if place.phase else ""
    who = f": {format_ranks(culprit)}" if culprit else ""
    call = f" in {verdict.call}" if who and verdict.call else ""
    return f"{verdict.outcome}{at}{phase}{who}{call}"


LEAST_LINES = 12  # shown however small the terminal is
_LONGEST_VALUE = 60  # characters, where there is no terminal to say how many fit
_TITLE = 34  # characters of a step
_LABELS = {"environment": "variables"}


def comparison_lines(found: Comparison, width: int | None, height: int | None) -> list[str]:
    """Return the lines; on a terminal of that many columns and lines no more than fit on it."""
    head = [*_start_lines("A", found.a), *_start_lines("B", found.b)]
    if found.is_same:
        lines = [*head, f"same      nothing differs: {_count_same(found)}"]
        return [cut_line(line, width) for line in [*lines, *_missing_lines(found)]]
    body = [*_setting_lines(found.settings, width), *_time_lines(found.times)]
    tail = [f"same      {_count_same(found)}", *_missing_lines(found)]
    if height is not None:
        room = max(height - 1, LEAST_LINES) - len(head) - len(tail)
        if len(body) > room:
            left_out = len(body) - room + 1
            body = [
                *body[: room - 1],
                f"          and {format_count(left_out, 'line')} more: --json",
            ]
    return [cut_line(line, width) for line in [*head, *body, *tail]]


def _start_lines(name: str, start: Start) -> Iterator[str]:
    took = "" if start.seconds is None else f", {format_seconds(start.seconds)}"
    size = f"{format_count(start.world_size, 'rank')}{took}"
    yield f"{_label(name)}{join_lines(start.what)}  {size}  {join_lines(start.folder)}"
    if start.cause:
        yield f"          cause: {join_lines(start.cause)}"


# ---- settings ------------------------------------------------------------------------------------


def _setting_lines(found: Sequence[SettingDifference], width: int | None) -> Iterator[str]:
    before = ""
    for one in found:
        label = _LABELS.get(one.topic, one.topic) if one.topic != before else ""
        before = one.topic
        name = "" if one.name == one.topic else f"{one.name}  "
        who = f"  ({format_ranks(one.ranks)})" if one.ranks else ""
        room = (
            _LONGEST_VALUE if width is None else max((width - 20 - len(name) - len(who)) // 2, 12)
        )
        values = _format_values(one, room)
        yield f"{_label(label)}{join_lines(name)}{'  ' * bool(name)}{values}{who}"


def _format_values(one: SettingDifference, room: int) -> str:
    a, b = (cut_line(join_lines(value), room) for value in (one.a, one.b))
    if one.topic == "command" and not (a and b):
        return f"only in {'A' if a else 'B'}: {a or b}"
    return f"A {a or '(not set)'}  B {b or '(not set)'}"


# ---- times ---------------------------------------------------------------------------------------


def _time_lines(found: Sequence[TimeDifference]) -> Iterator[str]:
    if not found:
        return
    names = [_format_step_name(one) for one in found]
    wide = min(max(map(len, names)), _TITLE)
    took = [(_format_result(one.a), _format_result(one.b)) for one in found]
    columns = [max(len(pair[i]) for pair in took) for i in (0, 1)]
    for number, (one, name, (a, b)) in enumerate(zip(found, names, took, strict=True)):
        both = one.a.was_ended and one.b.was_ended
        more = f"  {one.seconds:+.1f} s" if both else ""
        who = f"  (most: {format_ranks(one.ranks)})" if one.ranks else ""
        label = _label("" if number else "times")
        columns_of = f"A {a:>{columns[0]}}  B {b:>{columns[1]}}"
        yield f"{label}{cut_line(name, wide):<{wide}}  {columns_of}{more}{who}"


def _format_step_name(one: TimeDifference) -> str:
    number = "" if one.number is None else f"{one.number} "
    return f"{'  ' * one.depth}{number}{join_lines(one.title)}"


def _format_result(one: StepResult) -> str:
    if one.unended is not None:
        who = f"{format_ranks(one.stopped)}: " if one.seconds is not None else ""
        return f"{who}not ended after {format_seconds(one.unended)}"
    return "not done" if one.seconds is None else format_seconds(one.seconds)


# ---- the rest ------------------------------------------------------------------------------------


def _count_same(found: Comparison) -> str:
    words = {"environment": "variable", "versions": "version", "steps": "step"}
    parts = []
    for topic, count in found.same.items():
        parts.append(format_count(count, words[topic]) if topic in words else topic)
    times = (
        f" (steps: within {NOISE_SECONDS:g} s or {NOISE_SHARE:.0%})"
        if "steps" in found.same
        else ""
    )
    return (", ".join(parts) or "nothing could be compared") + times


def _missing_lines(found: Comparison) -> list[str]:
    return [f"{_label('' if i else 'unknown')}{join_lines(s)}" for i, s in enumerate(found.missing)]


def _label(label: str) -> str:
    return f"{label:<10}"
