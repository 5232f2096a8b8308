"""What an isolation or a matrix found, in words, from whatever lies in its file."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from ..kept.fields import objects, text
from ..kept.run import KeptRun
from ..words import counted, seconds
from .answer import Answer, Fact

_FOUND = {
    "isolated": ("Isolated", "a change that makes the hang go away"),
    "hangs_all_safe": ("Hangs even with all safe", "no remedy avoids it"),
    "no_hang": ("No hang", "no start hung"),
    "not_isolated": ("Not isolated", "it hangs, and what avoids it is not known"),
    "interrupted": ("Interrupted", "it can be resumed"),
}


def trials_answer(run: KeptRun) -> Answer:
    """Return the answer of an isolation, or of a matrix."""
    return _isolation(run) if run.kind == "isolation" else _matrix(run)


def _isolation(run: KeptRun) -> Answer:
    said = run.answer
    outcome = text(said, "outcome")
    word, title = _FOUND.get(outcome, ("Isolation", "without an answer"))
    changes = [f"{text(c, 'toggle')}={text(c, 'value')}" for c in objects(said, "changes")]
    if outcome == "isolated" and changes:
        title = f"it does not hang with {' and '.join(changes)}"
    facts = [
        *_fact("Why", text(said, "why")),
        *_fact("Change", *(_change(change) for change in objects(said, "changes"))),
        *_fact("Use", text(said, "paste")),
        *_fact("With it", _count(said.get("with_it"))),
        *_fact("Without", _count(said.get("without"))),
        *_fact("Chance", _chance(said.get("p_value"))),
        *_fact("Not it", *_texts(said.get("not_it"))),
        *_fact("Next", text(said, "next")),
    ]
    return Answer(
        outcome="ok" if outcome == "no_hang" else outcome.replace("_", "-") or "unknown",
        word=word,
        title=title,
        size=_size(run, "start"),
        command=shlex.join(_texts(said.get("command"))),
        facts=tuple(facts),
    )


def _matrix(run: KeptRun) -> Answer:
    results = [trial.result or "not run" for trial in run.trials]
    counts = [f"{results.count(result)} {result}" for result in dict.fromkeys(results)]
    scenario, title = text(run.answer, "scenario"), text(run.answer, "title")
    facts = [*_fact("Examines", title), *_fact("Scenario", scenario)]
    return Answer(
        outcome="hang" if "hang" in results else "ok" if set(results) <= {"ok"} else "crash",
        word="Matrix",
        title=", ".join(counts) or "no cells",
        size=_size(run, "cell"),
        command="",
        facts=tuple(facts),
    )


def _size(run: KeptRun, what: str) -> str:
    took = run.answer.get("seconds")
    known = isinstance(took, int | float) and 0 <= took < 1e9
    parts = [counted(len(run.trials), what), seconds(float(took or 0)) if known else ""]
    return ", ".join(filter(None, parts))


def _fact(label: str, *lines: str) -> Iterator[Fact]:
    told = tuple(filter(None, lines))
    if told:
        yield Fact(label, told)


def _change(change: Mapping[str, Any]) -> str:
    before, value = text(change, "before"), text(change, "value")
    costs = text(change, "cost")
    told = f"{text(change, 'toggle')}: {f'{before} -> ' if before else ''}{value}"
    return f"{told} (costs: {costs})" if costs else told


def _count(found: Any) -> str:
    if not isinstance(found, dict) or not isinstance(found.get("starts"), int):
        return ""
    return f"{found.get('hangs', 0)!s:.9} hangs in {counted(found['starts'], 'start')}"


def _chance(p_value: Any) -> str:
    if not isinstance(p_value, int | float):
        return ""
    return f"p = {float(p_value):.2g}, of as large a difference, were there none"


def _texts(values: Any) -> list[str]:
    return [one for one in values if isinstance(one, str)] if isinstance(values, list) else []
