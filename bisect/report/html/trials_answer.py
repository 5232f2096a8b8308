"""What an isolation or a matrix found, in words, from whatever lies in its file."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

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
    outcome = _text(said.get("outcome"))
    word, title = _FOUND.get(outcome, ("Isolation", "without an answer"))
    changes = [f"{_text(c.get('toggle'))}={_text(c.get('value'))}" for c in _all(said, "changes")]
    if outcome == "isolated" and changes:
        title = f"it does not hang with {' and '.join(changes)}"
    facts = [
        *_fact("Why", _text(said.get("why"))),
        *_fact("Change", *(_change(change) for change in _all(said, "changes"))),
        *_fact("Use", _text(said.get("paste"))),
        *_fact("With it", _count(said.get("with_it"))),
        *_fact("Without", _count(said.get("without"))),
        *_fact("Chance", _chance(said.get("p_value"))),
        *_fact("Not it", *_texts(said.get("not_it"))),
        *_fact("Next", _text(said.get("next"))),
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
    scenario, title = _text(run.answer.get("scenario")), _text(run.answer.get("title"))
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
    before, value = _text(change.get("before")), _text(change.get("value"))
    costs = _text(change.get("cost"))
    text = f"{_text(change.get('toggle'))}: {f'{before} -> ' if before else ''}{value}"
    return f"{text} (costs: {costs})" if costs else text


def _count(found: Any) -> str:
    if not isinstance(found, dict) or not isinstance(found.get("starts"), int):
        return ""
    return f"{found.get('hangs', 0)!s:.9} hangs in {counted(found['starts'], 'start')}"


def _chance(p_value: Any) -> str:
    if not isinstance(p_value, int | float):
        return ""
    return f"p = {float(p_value):.2g}, of as large a difference, were there none"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(values: Any) -> list[str]:
    return [one for one in values if isinstance(one, str)] if isinstance(values, list) else []


def _all(said: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = said.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
