"""The redactor for a run, which knows what the run's own files tell before anything is redacted;
and a run of which every text has passed one redactor, so that the same secret has the same mark
in all that is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from ...base.events import decode, encode
from ...base.facts import Verdict
from ...base.json_codec import fit_json, to_json
from ..run_reader.run import RecordedRun, RecordedTrial
from .pseudonyms import Known
from .redactor import Redactor

_T = TypeVar("_T")
_HOMES = ("HOME",)
_USERS = ("USER", "LOGNAME", "USERNAME", "SUDO_USER", "SLURM_JOB_USER")
_HOSTS = ("host", "neighbours", "HOSTNAME", "SLURMD_NODENAME", "SLURM_SUBMIT_HOST", "MASTER_ADDR")


def redactor_for(run: RecordedRun, anonymous: bool = False) -> Redactor:
    """Return a redactor that has met the secrets, and with `anonymous` the names, of `run`.

    They are met in an order of their own: so a thing has the same mark in every file that is made
    of this run, whenever it is made, and a password that a variable holds is found in a log.
    """
    parts = list(_list_run_parts(run))
    redactor = Redactor(anonymous, find_names(parts) if anonymous else Known())
    for part in parts:
        redactor.learn(part)
    return redactor


def find_names(objects: Iterable[Any]) -> Known:
    """Return hosts, users and home folders that the objects of a run's JSON files name."""
    hosts: dict[str, None] = {}
    users: dict[str, None] = {}
    homes: dict[str, None] = {}
    for name, value in _named_texts(objects):
        for names, found in ((_HOSTS, hosts), (_USERS, users), (_HOMES, homes)):
            if name in names:
                found[value] = None
    return Known(tuple(hosts), tuple(users), tuple(homes))


def _list_run_parts(run: RecordedRun) -> Iterator[Any]:
    for one in run.everywhere:
        yield from map(to_json, (one.environment, one.verdict, one.answer))
    for one in run.everywhere:
        told = [encode(event) for event in one.events]
        yield from (one.evidence, told, dict(sorted(one.stacks.items())), one.merged)


def _named_texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if name and value:
            yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _named_texts(item, str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _named_texts(item, name)


class AnyRedactor(Protocol):
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


class NoRedaction:
    """Masks nothing, with the methods of a Redactor: for reports that are not given away."""

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


def redact_run(run: RecordedRun, redactor: AnyRedactor) -> RecordedRun:
    """Return the same run, every text redacted; the folder is as it was named."""
    return replace(
        run,
        verdict=_redact_verdict(run.verdict, redactor),
        events=tuple(decode(redactor.json(encode(event))) for event in run.events),
        evidence=None if run.evidence is None else redactor.json(dict(run.evidence)),
        environment=_redact(run.environment, redactor),
        record=_redact(run.record, redactor),
        stacks={redactor.name(name): redactor.text(text) for name, text in run.stacks.items()},
        merged=redactor.text(run.merged),
        nodes=tuple(redact_run(node, redactor) for node in run.nodes),
        trials=tuple(_redact_trial(trial, redactor) for trial in run.trials),
        answer=_redact(run.answer, redactor),
        missing=tuple(redactor.text(sentence) for sentence in run.missing),
    )


def _redact(held: _T, redactor: AnyRedactor) -> _T:
    """Return what a file holds (None: there is none), every text redacted."""
    return held if held is None else fit_json(type(held), redactor.json(to_json(held)))[0]


def _redact_verdict(verdict: Verdict | None, redactor: AnyRedactor) -> Verdict | None:
    found = _redact(verdict, redactor)
    if found is None or verdict is None:
        return None
    # A flag before a word tells what the word is.
    return replace(found, command=tuple(redactor.command(verdict.command)))


def _redact_trial(trial: RecordedTrial, redactor: AnyRedactor) -> RecordedTrial:
    return replace(
        trial,
        name=redactor.text(trial.name),
        settings={name: redactor.value(name, value) for name, value in trial.settings.items()},
        where=redactor.text(trial.where),
        result=redactor.text(trial.result),
    )
