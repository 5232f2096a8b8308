"""A user's own toggle, from a scenario file: arguments or environment of their script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from ..errors import UsageError
from .program_words import own_words
from .toggle import Toggle


def own_toggle(
    name: str,
    words: Mapping[str, Sequence[str]],
    environment: Mapping[str, Mapping[str, str]] | None = None,
    kind: Literal["remedy", "probe"] = "remedy",
    help: str = "",
    component: str = "script",
    cost: str = "",
) -> Toggle:
    """Return the toggle with the values of `words` and `environment`, as one runs it first.

    Each value has words for the end of the command ({"off": ["--no-cache"]}; they replace those
    that this or another value names), variables, both, or neither: that is how the script is run
    today. Raises UsageError for words that begin with neither a flag nor NAME=,
    since what they replace could not be told.
    """
    environment = environment or {}
    values = tuple(dict.fromkeys([*words, *environment]))
    if len(values) < 2:
        has = "one value" if values else "no value"
        raise UsageError(f"the toggle {name!r} has {has}: it takes two at least")
    for value, listed in words.items():
        if listed and not _begins(listed[0]):
            raise UsageError(
                f"the toggle {name!r} has {listed[0]!r} at {value!r}: the words of a value begin "
                "with a flag (--lr 0.1) or with NAME= (trainer.devices=1)"
            )
    bare = [v for v in values if not words.get(v) and not environment.get(v)]
    return Toggle(
        name=name,
        component=component,
        values=values,
        kind=kind,
        read="run",
        read_how="your script",
        cost=cost or "as you know it: it is a toggle of yours",
        help=help or "a toggle of yours",
        default=bare[0] if bare else None,
        words=tuple((value, tuple(listed)) for value, listed in words.items()),
        environment=tuple(
            (value, variable, set_to)
            for value, wanted in environment.items()
            for variable, set_to in wanted.items()
        ),
        own=True,
    )


def with_words(command: Sequence[str], entry: Toggle, value: str) -> tuple[str, ...]:
    """Return the command with a value's words at its end, and no others of the toggle."""
    begin = own_words(command)
    kept = list(command[begin:])
    for _, words in entry.words:
        for chunk in _chunks(words):
            kept = _without(kept, chunk)
    return (*command[:begin], *kept, *dict(entry.words).get(value, ()))


def as_run(entry: Toggle, command: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Return the value whose words and variables are all there, else the one that has none.

    Where each has some, and nothing is there that any of them replaces, it is the first: they go
    from as one runs it to safest. None where something else is there.
    """
    words_there = command[own_words(command) :]
    own = " ".join(["", *words_there, ""])
    listed = dict(entry.words)
    for value in reversed(entry.values):
        words = listed.get(value, ())
        wanted = [(name, to) for known, name, to in entry.environment if known == value]
        there = all(f" {' '.join(chunk)} " in own for chunk in _chunks(words))
        if (words or wanted) and there and all(environ.get(name) == to for name, to in wanted):
            return value
    if entry.default is not None or _is_set(entry, words_there, environ):
        return entry.default
    return entry.values[0]


def _is_set(entry: Toggle, words_there: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether anything is there that a value of it would replace."""
    names = {chunk[0].partition("=")[0] for _, words in entry.words for chunk in _chunks(words)}
    there = {word.partition("=")[0] for word in words_there}
    return bool(names & there) or any(name in environ for _, name, _ in entry.environment)


def _begins(word: str) -> bool:
    return word.startswith("-") or "=" in word


def _chunks(words: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the words as flags, each with the values that follow it."""
    chunks: list[list[str]] = []
    for word in words:
        if not chunks or (_begins(word) and not _is_number(word)):
            chunks.append([word])
        else:
            chunks[-1].append(word)
    return [tuple(chunk) for chunk in chunks]


def _is_number(word: str) -> bool:
    return word.lstrip("-").replace(".", "", 1).isdigit()


def _without(command: Sequence[str], chunk: tuple[str, ...]) -> list[str]:
    """Return a command without a flag and as many words after it as the chunk has."""
    name, equals, _ = chunk[0].partition("=")
    kept: list[str] = []
    skip = 0
    for word in command:
        known, has_value, _ = word.partition("=")
        if skip:
            skip -= 1
        elif known != name or (equals and not has_value):
            kept.append(word)
        elif not has_value:
            skip = len(chunk) - 1
    return kept
