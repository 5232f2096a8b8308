"""A run without what may not leave: every text of it through one redactor, so that the same secret
has the same mark in all that is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from .run import KeptRun
from .trials import Trial


class Redactor(Protocol):
    """What redacts (report/redaction/)."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How many places were masked, by kind."""

    @property
    def secrets(self) -> int:
        """How many different secrets were masked."""

    def text(self, text: str) -> str:
        """Return a text, of any number of lines."""

    def value(self, name: str, value: str) -> str:
        """Return the value of a variable."""

    def json(self, value: Any) -> Any:
        """Return an object of the same shape."""

    def name(self, name: str) -> str:
        """Return a file's name."""

    def command(self, words: Sequence[str]) -> list[str]:
        """Return a command line."""


class Unredacted:
    """Masks nothing: for who keeps the reports."""

    counts: Mapping[str, int] = {}
    secrets = 0

    def text(self, text: str) -> str:
        return text

    def value(self, name: str, value: str) -> str:
        return value

    def json(self, value: Any) -> Any:
        return value

    def name(self, name: str) -> str:
        return name

    def command(self, words: Sequence[str]) -> list[str]:
        return list(words)


def redacted(run: KeptRun, redactor: Redactor) -> KeptRun:
    """Return the same run, every text redacted; the folder is as it was named."""
    return replace(
        run,
        verdict=_verdict(run.verdict, redactor),
        events=tuple(redactor.json(dict(event)) for event in run.events),
        evidence=None if run.evidence is None else redactor.json(dict(run.evidence)),
        environment=None if run.environment is None else redactor.json(dict(run.environment)),
        stacks={redactor.name(name): redactor.text(text) for name, text in run.stacks.items()},
        merged=redactor.text(run.merged),
        nodes=tuple(redacted(node, redactor) for node in run.nodes),
        trials=tuple(_trial(trial, redactor) for trial in run.trials),
        answer=redactor.json(dict(run.answer)),
        missing=tuple(redactor.text(sentence) for sentence in run.missing),
    )


def _verdict(verdict: Mapping[str, Any], redactor: Redactor) -> dict[str, Any]:
    found: dict[str, Any] = redactor.json(dict(verdict))
    if verdict:
        # A flag before a word tells what the word is.
        found["command"] = redactor.command(list(verdict["command"]))
    return found


def _trial(trial: Trial, redactor: Redactor) -> Trial:
    return replace(
        trial,
        name=redactor.text(trial.name),
        settings={name: redactor.value(name, value) for name, value in trial.settings.items()},
        where=redactor.text(trial.where),
        result=redactor.text(trial.result),
    )
