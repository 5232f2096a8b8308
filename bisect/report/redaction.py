"""What a file that leaves may not hold: secrets, and on request who and where its job ran.

`Redactor` replaces both in texts, values and JSON by marks, the same for the same thing in all
files and ranks of one run. It finds all secrets in a text, those too that are known from
elsewhere; a mark says nothing of the secret. It is pure: it opens no file and asks no other
process. `redactor_for` returns the one for a run, which knows what the run's own files tell before
anything is redacted; `redact_run` returns a run of which every text has passed it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, unquote

from ..base.events import decode, encode
from ..base.json_codec import fit_json, to_json
from ..base.secret_rules.finding import spans_lines, told_secrets_in
from ..base.secret_rules.names import Says, kind_by_name, says
from ..base.secret_rules.shapes import is_hexadecimal_key, shapes_in
from ..base.secret_rules.values import Span, is_nothing, is_path, looks_secret, settled
from ..base.verdict_facts import Verdict
from .pseudonyms import Known, People
from .run_reader.run import RecordedRun, RecordedTrial

# What a mark looks like. On GitHub `#` would be a link to an issue, `<...>` vanish as a tag.
MARK = re.compile(r"\[[A-Za-z&][A-Za-z& ]{2,28} [0-9]{1,6}\]")
_SHORTEST = 6  # characters of what is looked for wherever it stands
_MOST_VALUES = 500  # values that are looked for: each is, in every text
_WORD = re.compile(r"[A-Za-z]{1,11}|[0-9]{1,7}")


def kind_of_mark(mark: str) -> str:
    """Return the kind of secret that a mark tells."""
    return mark[1:].rpartition(" ")[0]


class Marks:
    """The secrets that were met, each with its mark, numbered by kind in the order of meeting."""

    def __init__(self) -> None:
        """Start without any."""
        self.counts: Counter[str] = Counter()  # replacements, by kind
        self.by_value: dict[str, str] = {}  # what is looked for everywhere: its mark
        self._marks: dict[str, str] = {}
        self._numbers: Counter[str] = Counter()

    def mark(self, secret: str, kind: str) -> str:
        """Return the mark of `secret`; of what was met before it is the same, of whatever kind."""
        mark = self._marks.get(secret)
        if mark is None:
            self._numbers[kind] += 1
            mark = self._marks[secret] = f"[{kind} {self._numbers[kind]}]"
        return mark

    def count(self, mark: str) -> None:
        """Count that a mark was put somewhere."""
        self.counts[kind_of_mark(mark)] += 1

    def find_again(self, secret: str, kind: str) -> None:
        """Have `secret` found wherever it stands, in URLs and within words too.

        What is short or a common word is not: it would be found everywhere.
        """
        if secret in self.by_value or len(self.by_value) >= _MOST_VALUES or "\n" in secret:
            return
        if len(secret) < _SHORTEST or is_nothing(secret) or _WORD.fullmatch(secret):
            return
        mark = self.mark(secret, kind)
        for form in (secret, unquote(secret), quote(secret, safe="")):
            if len(form) >= _SHORTEST:
                self.by_value.setdefault(form, mark)
                self._marks.setdefault(form, mark)

    @property
    def secrets(self) -> int:
        """How many different secrets were met."""
        return sum(self._numbers.values())


# What a value that was cut short ends with.
_CUT_VALUE = re.compile(r"([^\s\"'=:,;@]{8,})(?:\.\.\.|…)")


def find_secrets(text: str, known: Mapping[str, str]) -> Iterator[Span]:
    """Yield the secrets in `text`; those of `known` (value: mark) wherever they stand."""
    yield from told_secrets_in(text)
    yield from _find_known(text, known)


def kind_of_secret(secret: str) -> str:
    """Return the kind of what has the shape of a secret as a whole, "" if it has none."""
    whole = (0, len(secret))
    return next((kind for *place, kind in shapes_in(secret) if tuple(place) == whole), "")


def _find_known(text: str, known: Mapping[str, str]) -> Iterator[Span]:
    for value, mark in known.items():
        at = text.find(value)
        while at >= 0:
            yield Span(at, at + len(value), kind_of_mark(mark))
            at = text.find(value, at + len(value))
    if known and ("..." in text or "…" in text):
        for found in _CUT_VALUE.finditer(text):
            if any(value.startswith(found[1]) for value in known):
                yield Span(*found.span(1), "secret")


_MOST_HARMLESS = 50_000  # harmless texts that are remembered
_LONGEST_HARMLESS = 400  # characters of one
_MOST_ROUNDS = 4
_LONGEST_NAME = 120  # characters of a file's name
# A mark behind a lone escape character is none.
_COLOUR = re.compile(r"\x1b\[[0-9;:?]{0,30}[A-Za-z](?![A-Za-z& ]{1,28} [0-9]{1,6}\])")
_UNSAFE = re.compile(r"[^\w.,+=@&() \[\]-]", re.ASCII)


class Redactor:
    """Replaces secrets by marks, and with `anonymous` people and machines by pseudonyms.

    The same thing has the same mark in all that one redactor was given. Texts are redacted whole
    and cut afterwards: half a secret is not known again. Not for several threads at once.
    """

    def __init__(self, anonymous: bool = False, known: Known = Known()) -> None:  # noqa: B008 - frozen
        """Start with what is `known` of the run."""
        self.anonymous = anonymous
        self._marks = Marks()
        self._people = People(known) if anonymous else None
        self._harmless: set[str] = set()  # texts that hold nothing, as far as is known

    @property
    def counts(self) -> Mapping[str, int]:
        """How often something was replaced, by kind."""
        return dict(sorted(self._marks.counts.items()))

    @property
    def secrets(self) -> int:
        """How many different secrets were met."""
        return self._marks.secrets

    def learn(self, value: Any) -> None:
        """Meet the secrets in a text or JSON object, so that what is redacted before and after it
        has the same marks; nothing is counted.
        """
        before = Counter(self._marks.counts)
        self.json(value)
        self._marks.counts = before

    def text(self, text: str) -> str:
        """Return `text` redacted, and without colours: they may stand within a secret."""
        if text in self._harmless:
            return text
        if "\x1b" in text:
            text = _COLOUR.sub("", text)
        if "\n" in text and not spans_lines(text):
            return "\n".join(map(self._text, text.split("\n")))
        return self._text(text)

    def _text(self, text: str) -> str:
        if text in self._harmless:
            return text
        met = self._met
        redacted = self._once(text)
        for _ in range(_MOST_ROUNDS):  # a mark may lay open what stood too close to a secret
            earlier, redacted = redacted, redacted if redacted == text else self._once(redacted)
            if redacted == earlier:
                break
        self._forget_since(met)
        if (
            self._met == met
            and redacted == text
            and len(text) <= _LONGEST_HARMLESS
            and len(self._harmless) < _MOST_HARMLESS
        ):
            self._harmless.add(text)
        return redacted

    def value(self, name: str, value: str) -> str:
        """Return the value of the variable, flag or key `name` redacted.

        Quotes around it stay, as a debugger words a text.
        """
        inner = value[1:-1] if _is_quoted(value) else value
        name_says = says(name)
        if (name_says is Says.SECRET and _can_be_secret(inner)) or (
            name_says is Says.PERHAPS and looks_secret(inner)
        ):
            kind = kind_of_secret(inner) or kind_by_name(name)
            met = self._met
            self._marks.find_again(inner, kind)
            self._forget_since(met)
            return value.replace(inner, self._one_mark(inner, kind))
        if self._people is not None:
            met = self._met
            said = self._people.value(name, value, self._marks.counts)
            self._forget_since(met)
            if said:
                return said
        return self.text(value)

    def command(self, words: Sequence[str]) -> list[str]:
        """Return a command line redacted; the word behind `--api-key` is one of that name."""
        redacted, flag = [], ""
        for number, word in enumerate(words):
            name, equals, value = word.partition("=")
            if is_hexadecimal_key(word, " ".join(words[:number])):
                redacted.append(self.value("wandb_key", word))
            elif flag and not word.startswith("-"):
                redacted.append(self.value(flag, word))
            elif equals and says(name) is not Says.NOTHING:
                redacted.append(f"{self.text(name)}={self.value(name, value)}")
            else:
                redacted.append(self.text(word))
            flag = word if word.startswith("-") and not equals else ""
        return redacted

    def json(self, value: Any, name: str = "") -> Any:
        """Return a new object of the same shape with its texts redacted; keys are their names.

        Numbers, True, False and None stay, but for a number that is a password.
        """
        if value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, str):
            return self.value(name, value) if name else self.text(value)
        if isinstance(value, dict):
            return self._mapping(value, name)
        if isinstance(value, list | tuple):
            return self._sequence(value, name)
        if isinstance(value, int) and abs(value) > 999 and says(name) is Says.SECRET:
            return self.value(name, str(value))
        return value

    def name(self, name: str) -> str:
        """Return a name for a file: `name` redacted, of harmless characters, and not too long."""
        safe = _UNSAFE.sub("_", self.text(name)).strip(". ")
        return safe[:_LONGEST_NAME] or "_"

    def _mapping(self, value: Mapping[Any, Any], outer: str) -> dict[Any, Any]:
        """Return a mapping redacted; `outer` is the name that it stands under itself."""
        name_says = says(outer)
        redacted: dict[Any, Any] = {}
        for key, item in value.items():
            own = str(key)
            if own == "value" and isinstance(value.get("name"), str):  # {"name": ..., "value": ...}
                own = value["name"]
            elif name_says is not Says.NOTHING and says(own) is Says.NOTHING:
                own = outer
            shown = self.text(key) if isinstance(key, str) and key not in self._harmless else key
            while shown in redacted:
                shown = f"{shown} (again)"
            redacted[shown] = self.json(item, own)
        return redacted

    def _sequence(self, value: Sequence[Any], name: str) -> list[Any]:
        """Return a list redacted: a pair of name and value, a command line, or any other."""
        if value and isinstance(value[0], str) and says(name) is Says.NOTHING:
            words = [one for one in value if isinstance(one, str)]
            if len(words) == len(value) == 2 and words[0].isidentifier():
                return [self.text(words[0]), self.value(*words)]
            if len(words) == len(value) and any(word.startswith("-") for word in words):
                return self.command(words)
        return [self.json(one, name) for one in value]

    @property
    def _met(self) -> int:
        return len(self._marks.by_value) + (self._people.met if self._people else 0)

    def _forget_since(self, met: int) -> None:
        """Forget what was harmless if more is known now than when `met` was counted."""
        if self._met != met:
            self._harmless.clear()

    def _once(self, text: str) -> str:
        text = self._without_secrets(text)
        if self._people is not None:
            return self._people.replaced(text, self._marks.counts)
        return text

    def _without_secrets(self, text: str) -> str:
        marked = [found.span() for found in MARK.finditer(text)] if "[" in text else []
        found = list(find_secrets(text, self._marks.by_value))
        if not found:
            return text
        parts, done = [], 0
        for span in settled(found, marked):
            secret = text[span.start : span.end]
            if not any(map(str.isalnum, secret)):
                continue
            self._marks.find_again(secret, span.kind)
            parts += [text[done : span.start], self._one_mark(secret, span.kind)]
            done = span.end
        return "".join([*parts, text[done:]])

    def _one_mark(self, secret: str, kind: str) -> str:
        mark = self._marks.mark(secret, kind)
        self._marks.count(mark)
        return mark


def _is_quoted(value: str) -> bool:
    return len(value) > 2 and value[0] in "'\"" and value[-1] == value[0]


def _can_be_secret(value: str) -> bool:
    return not is_nothing(value) and not is_path(value) and MARK.fullmatch(value) is None


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
        events = [encode(event) for event in one.events]
        yield from (one.evidence, events, dict(sorted(one.stacks.items())), one.merged)


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
    """What redacts: a `Redactor`, or none."""

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
