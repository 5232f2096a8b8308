"""A run as one page of HTML, and its answer in words: of a verdict the parts that a terminal shows
as lines, of an isolation or a matrix whatever lies in its file.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...base.lazy_dataclass import dataclass
from ...base.rank_facts import RankFacts
from ...base.verdict_facts import Cause, Outcome, Ranks, Verdict
from ...base.words import LEVELS, cause_page, format_count, format_seconds
from ...search.cells import RecordedMatrix
from ...search.isolation import Isolation, IsolationOutcome
from ..isolation_text import word_isolation, word_next_step
from ..rows import Row, word_good_run
from ..run_reader.rank_differences import find_differences
from ..run_reader.run import RecordedRun, read_rank_facts
from ..verdict_rows import word_recorded_verdict
from .graph_picture import graph_picture
from .page_parts import difference_tables, looks_part, stack_trees, tracebacks, trial_rows
from .templates import ShownTexts, render_page
from .timeline_picture import time_picture

if TYPE_CHECKING:
    from ..redaction import AnyRedactor


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
    verdict = run.verdict or _NO_VERDICT
    ranks = read_rank_facts(run)
    answer = verdict_answer(verdict, ranks, run.folder.name) if run.verdict else NO_ANSWER
    return {
        "answer": answer,
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
    "silent": "Silent",
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
    level: str  # in words
    page: str  # where it is explained
    matched: tuple[str, ...]
    avoid: tuple[str, ...]


@dataclass(frozen=True)
class Attempt:
    """What to try."""

    what: str
    command: str


@dataclass(frozen=True)
class PageAnswer:
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


NO_ANSWER = PageAnswer("unknown", "No verdict", "nobody wrote one", "", "")


def verdict_answer(verdict: Verdict, ranks: Sequence[RankFacts], folder: str) -> PageAnswer:
    """Return a verdict in words; `ranks` as far as they are known."""
    place, cause = verdict.checkpoint, verdict.cause
    title = f"{verdict.pipeline}, {format_count(verdict.world_size, 'rank')}"
    if place is not None:
        number = f"checkpoint {place.number}, " if place.number is not None else ""
        phase = f", phase {place.phase}" if place.phase else ""
        title = f"at {number}{place.title}{phase}"
    return PageAnswer(
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
        level=LEVELS[cause.level],
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
        well = word_good_run(verdict, runs_script=True)
        return [Fact("In short", (well.headline, *(f"{r.label}: {r.text}" for r in well.rows)))]
    return [
        _row_fact(row)
        for row in word_recorded_verdict(verdict, folder, ranks).rows
        if row.label not in _ELSEWHERE
    ]


def _row_fact(row: Row) -> Fact:
    """Return a row by the label of a page; a page says its `aside` in a sentence."""
    return Fact(_LABELS.get(row.label, row.label.capitalize()), (row.text, *row.detail))


_ISOLATION_OUTCOMES: dict[IsolationOutcome, tuple[str, str]] = {
    "isolated": ("Isolated", "a change that makes the hang go away"),
    "hangs_all_safe": ("Hangs even with all safe", "no remedy avoids it"),
    "no_hang": ("No hang", "no start hung"),
    "not_isolated": ("Not isolated", "it hangs, and what avoids it is not known"),
    "interrupted": ("Interrupted", "it can be resumed"),
}


def trials_answer(run: RecordedRun) -> PageAnswer:
    """Return the answer of an isolation, or of a matrix."""
    if isinstance(run.answer, Isolation):
        return _isolation_answer(run.answer)
    if run.kind == "isolation":
        size = format_count(len(run.trials), "start")
        return PageAnswer("unknown", "Isolation", "without an answer", size, "")
    return _matrix_answer(run, run.answer)


def _isolation_answer(said: Isolation) -> PageAnswer:
    word, title = _ISOLATION_OUTCOMES[said.outcome]
    if said.outcome == "isolated" and said.changes:
        changes = [f"{change.toggle}={change.value}" for change in said.changes]
        title = f"it does not hang with {' and '.join(changes)}"
    rows = [*word_isolation(said, None).rows, *word_next_step(said)]
    facts = [
        *_fact("Why", said.why),
        *map(_row_fact, rows),
        *_fact("Chance", _chance(said.p_value)),
    ]
    return PageAnswer(
        outcome="ok" if said.outcome == "no_hang" else said.outcome.replace("_", "-"),
        word=word,
        title=title,
        size=_trials_size(len(said.trials), "start", said.seconds),
        command=shlex.join(said.command),
        facts=tuple(facts),
    )


def _matrix_answer(run: RecordedRun, said: RecordedMatrix | None) -> PageAnswer:
    results = [trial.result or "not run" for trial in run.trials]
    counts = [f"{results.count(result)} {result}" for result in dict.fromkeys(results)]
    facts = [*_fact("Examines", said.title), *_fact("Scenario", said.scenario)] if said else []
    return PageAnswer(
        outcome="hang" if "hang" in results else "ok" if set(results) <= {"ok"} else "crash",
        word="Matrix",
        title=", ".join(counts) or "no cells",
        size=_trials_size(len(run.trials), "cell", said.seconds if said else None),
        command="",
        facts=tuple(facts),
    )


def _trials_size(count: int, what: str, seconds: float | None) -> str:
    took = "" if seconds is None else f", {format_seconds(seconds)}"
    return f"{format_count(count, what)}{took}"


def _fact(label: str, *lines: str) -> Iterator[Fact]:
    texts = tuple(filter(None, lines))
    if texts:
        yield Fact(label, texts)


def _chance(p_value: float | None) -> str:
    if p_value is None:
        return ""
    return f"p = {p_value:.2g}, of as large a difference, were there none"
