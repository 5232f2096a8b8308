"""A run as one page of HTML, and its answer in words: of a verdict the parts that a terminal shows
as lines, of an isolation or a matrix whatever lies in its file.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...base.facts import Cause, Outcome, RankFacts, Ranks, Verdict
from ...base.words import cause_page, format_count, format_seconds
from ..facts_json import verdict_from_json
from ..isolation import read_isolation, word_isolation, word_next_step
from ..rows import Row, word_good_run
from ..run_reader.folder_files import list_field, text_field
from ..run_reader.rank_differences import find_differences
from ..run_reader.run import RecordedRun, read_rank_facts
from ..verdict_rows import word_recorded_verdict
from .graph_picture import graph_picture
from .stack_tree import stack_trees, tracebacks
from .tables import difference_tables, looks_part, trial_rows
from .templates import ShownTexts, render_page
from .timeline_picture import time_picture

if TYPE_CHECKING:
    from ..redaction.run_redaction import AnyRedactor


_NO_VERDICT = Verdict("interrupted", "", (), 0, 0, None, Ranks())


def html_page(run: RecordedRun, redactor: AnyRedactor, *, reported: bool = True) -> str:
    """Return report.html of a run, an isolation or a matrix: complete, for eyes, and of at most
    2 MiB. Every text of the run in it has passed `redactor`, and is shown as text.
    `reported`: the starts of an isolation or a matrix lie beside it with reports of their own.
    """
    shown = ShownTexts(redactor)
    parts = _run_parts(run, shown) if run.kind == "run" else _trials_parts(run, shown, reported)
    return render_page(shown, kind=run.kind, folder=run.folder.name, missing=run.missing, **parts)


def _trials_parts(run: RecordedRun, shown: ShownTexts, reported: bool) -> dict[str, Any]:
    return {
        "answer": trials_answer(run),
        "trials": trial_rows(run, shown, reported),
    }


def _run_parts(run: RecordedRun, shown: ShownTexts) -> dict[str, Any]:
    verdict = verdict_from_json(run.verdict) if run.verdict else _NO_VERDICT
    ranks = read_rank_facts(run)
    told = verdict_answer(verdict, ranks, run.folder.name) if run.verdict else NO_ANSWER
    return {
        "answer": told,
        "graph": graph_picture(run, verdict, shown),
        "timeline": time_picture(run, verdict, shown),
        "trees": stack_trees(ranks, verdict, shown),
        "tracebacks": tracebacks(run, verdict),
        "topics": difference_tables(find_differences(run), shown),
        "ranks": len(ranks) or verdict.world_size,
        "looks": looks_part(ranks, verdict, shown),
    }


_WORDS: dict[Outcome, str] = {
    "ok": "OK",
    "hang": "Hang",
    "slow": "Slow",
    "crash": "Crash",
    "interrupted": "Interrupted",
}
# What a page says in its own way, or has no use for.
_ELSEWHERE = ("cause", "because", "try", "job", "report")
_LABELS = {"culprit": "At fault", "waiting": "Only waiting", "command": "Use"}


@dataclass(frozen=True)
class Fact:
    label: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Why:
    """The cause."""

    title: str
    why: str
    confidence: str  # "0.67"
    page: str  # where it is explained
    matched: tuple[str, ...]
    avoid: tuple[str, ...]


@dataclass(frozen=True)
class Attempt:
    """What to try."""

    what: str
    command: str


@dataclass(frozen=True)
class Answer:
    """How a run ended, and why."""

    outcome: str  # a class of the style sheet
    word: str
    title: str  # of the page, after the word
    size: str
    command: str
    facts: tuple[Fact, ...] = ()
    why: Why | None = None
    tries: tuple[Attempt, ...] = ()
    notes: tuple[str, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()


NO_ANSWER = Answer("unknown", "No verdict", "nobody wrote one", "", "")


def verdict_answer(verdict: Verdict, ranks: Sequence[RankFacts], folder: str) -> Answer:
    """Return a verdict in words; `ranks` as far as they are known."""
    place, cause = verdict.checkpoint, verdict.cause
    title = f"{verdict.pipeline}, {format_count(verdict.world_size, 'rank')}"
    if place is not None:
        number = f"checkpoint {place.number}, " if place.number is not None else ""
        phase = f", phase {place.phase}" if place.phase else ""
        title = f"at {number}{place.title}{phase}"
    return Answer(
        outcome=verdict.outcome,
        word=_WORDS[verdict.outcome],
        title=title,
        size=_verdict_size(verdict, ranks),
        command=shlex.join(verdict.command),
        facts=tuple(_facts(verdict, ranks, folder)),
        why=None if cause is None else _why(cause),
        tries=tuple(Attempt(f"{one.toggle}={one.value}", one.command) for one in verdict.try_),
        notes=verdict.notes,
        versions=tuple(verdict.versions.items()),
    )


def _why(cause: Cause) -> Why:
    return Why(
        title=cause.title,
        why=cause.why,
        confidence=f"{cause.confidence:.2f}",
        page=cause_page(cause.id),
        matched=cause.matched,
        avoid=cause.avoid,
    )


def _verdict_size(verdict: Verdict, ranks: Sequence[RankFacts]) -> str:
    hosts = len({one.host for one in ranks if one.host})
    parts = [format_count(verdict.world_size, "rank")]
    parts += [format_count(hosts, "host")] if hosts > 1 else []
    parts += [f"{format_seconds(verdict.seconds.total)} after start"]
    return ", ".join(parts)


def _facts(verdict: Verdict, ranks: Sequence[RankFacts], folder: str) -> list[Fact]:
    """Return the rows of the verdict by the labels of a page."""
    if verdict.outcome == "ok":
        well = word_good_run(verdict, own=True)
        return [Fact("In short", (well.headline, *(f"{r.label}: {r.text}" for r in well.rows)))]
    return [
        _row_fact(row)
        for row in word_recorded_verdict(verdict, folder, ranks).rows
        if row.label not in _ELSEWHERE
    ]


def _row_fact(row: Row) -> Fact:
    """Return a row by the label of a page; what stands aside a page says in a sentence."""
    return Fact(_LABELS.get(row.label, row.label.capitalize()), (row.text, *row.detail))


_ISOLATION_OUTCOMES = {
    "isolated": ("Isolated", "a change that makes the hang go away"),
    "hangs_all_safe": ("Hangs even with all safe", "no remedy avoids it"),
    "no_hang": ("No hang", "no start hung"),
    "not_isolated": ("Not isolated", "it hangs, and what avoids it is not known"),
    "interrupted": ("Interrupted", "it can be resumed"),
}


def trials_answer(run: RecordedRun) -> Answer:
    """Return the answer of an isolation, or of a matrix."""
    return _isolation_answer(run) if run.kind == "isolation" else _matrix_answer(run)


def _isolation_answer(run: RecordedRun) -> Answer:
    said = run.answer
    outcome = text_field(said, "outcome")
    word, title = _ISOLATION_OUTCOMES.get(outcome, ("Isolation", "without an answer"))
    changes = [
        f"{text_field(c, 'toggle')}={text_field(c, 'value')}" for c in list_field(said, "changes")
    ]
    if outcome == "isolated" and changes:
        title = f"it does not hang with {' and '.join(changes)}"
    return Answer(
        outcome="ok" if outcome == "no_hang" else outcome.replace("_", "-") or "unknown",
        word=word,
        title=title,
        size=_trials_size(run, "start"),
        command=shlex.join(_texts(said.get("command"))),
        facts=tuple(_isolation_facts(run)),
    )


def _isolation_facts(run: RecordedRun) -> Iterator[Fact]:
    found, said = read_isolation(run), run.answer
    yield from _fact("Why", text_field(said, "why"))
    if found is not None:
        yield from map(_row_fact, [*word_isolation(found, None).rows, *word_next_step(found)])
    else:  # as much as can be read
        yield from _fact("Use", text_field(said, "paste"))
        yield from _fact("Next", text_field(said, "next"))
    yield from _fact("Chance", _chance(said.get("p_value")))


def _matrix_answer(run: RecordedRun) -> Answer:
    results = [trial.result or "not run" for trial in run.trials]
    counts = [f"{results.count(result)} {result}" for result in dict.fromkeys(results)]
    scenario, title = text_field(run.answer, "scenario"), text_field(run.answer, "title")
    facts = [*_fact("Examines", title), *_fact("Scenario", scenario)]
    return Answer(
        outcome="hang" if "hang" in results else "ok" if set(results) <= {"ok"} else "crash",
        word="Matrix",
        title=", ".join(counts) or "no cells",
        size=_trials_size(run, "cell"),
        command="",
        facts=tuple(facts),
    )


def _trials_size(run: RecordedRun, what: str) -> str:
    took = run.answer.get("seconds")
    known = isinstance(took, int | float) and 0 <= took < 1e9
    parts = [format_count(len(run.trials), what), format_seconds(float(took or 0)) if known else ""]
    return ", ".join(filter(None, parts))


def _fact(label: str, *lines: str) -> Iterator[Fact]:
    told = tuple(filter(None, lines))
    if told:
        yield Fact(label, told)


def _chance(p_value: Any) -> str:
    if not isinstance(p_value, int | float):
        return ""
    return f"p = {float(p_value):.2g}, of as large a difference, were there none"


def _texts(values: Any) -> list[str]:
    return [one for one in values if isinstance(one, str)] if isinstance(values, list) else []
