"""The verdict in words: what a terminal shows, in the parts that a page sets apart."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ...facts import Cause, Outcome, RankFacts, Verdict
from ..again import lines_again
from ..people_lines import LABEL
from ..well import well_lines
from ..words import cause_page, counted, seconds

_WORDS: dict[Outcome, str] = {
    "ok": "OK",
    "hang": "Hang",
    "slow": "Slow",
    "crash": "Crash",
    "interrupted": "Interrupted",
}
# What a page says in its own way, or has no use for.
_ELSEWHERE = ("cause", "because", "try", "job", "report")
_LABELS = {
    "culprit": "At fault",
    "waiting": "Only waiting",
    "also": "Also",
    "ended": "Ended",
    "missing": "Missing",
    "stack": "Stack",
    "last line": "Last line",
    "wrote": "Wrote",
    "was in": "Was in",
    "seen by": "Seen by",
    "prove it": "Prove it",
}


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


NOTHING = Answer("unknown", "No verdict", "nobody wrote one", "", "")


def answer(verdict: Verdict, ranks: Sequence[RankFacts], folder: str) -> Answer:
    """Return a verdict in words; `ranks` as far as they are known."""
    place, cause = verdict.checkpoint, verdict.cause
    title = f"{verdict.pipeline}, {counted(verdict.world_size, 'rank')}"
    if place is not None:
        number = f"checkpoint {place.number}, " if place.number is not None else ""
        phase = f", phase {place.phase}" if place.phase else ""
        title = f"at {number}{place.title}{phase}"
    return Answer(
        outcome=verdict.outcome,
        word=_WORDS[verdict.outcome],
        title=title,
        size=_size(verdict, ranks),
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


def _size(verdict: Verdict, ranks: Sequence[RankFacts]) -> str:
    hosts = len({one.host for one in ranks if one.host})
    parts = [counted(verdict.world_size, "rank")]
    parts += [counted(hosts, "host")] if hosts > 1 else []
    parts += [f"{seconds(verdict.seconds.total)} after start"]
    return ", ".join(parts)


def _facts(verdict: Verdict, ranks: Sequence[RankFacts], folder: str) -> list[Fact]:
    """Return the lines of the verdict by their labels."""
    if verdict.outcome == "ok":
        first, *more = well_lines(verdict, (), "", "", own=True)
        return [Fact("In short", (first, *(line.strip() for line in more)))]
    found: list[tuple[str, list[str]]] = []
    for line in lines_again(verdict, folder, ranks=ranks)[1:]:
        label, text = line[:LABEL].strip(), line[LABEL:].strip()
        if label or not found:
            found.append((label, [text]))
        else:
            found[-1][1].append(text)
    return [
        Fact(_LABELS.get(label, label), tuple(texts))
        for label, texts in found
        if label not in _ELSEWHERE
    ]
