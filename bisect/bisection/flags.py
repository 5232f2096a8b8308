"""Flags of ours in a command: read, and taken out."""

from __future__ import annotations

from collections.abc import Sequence

from .program_words import own_words_of_ours

ENV = "--env"
PIPELINE, FIRST_PIPELINE = "--pipeline", "startup"


def given(command: Sequence[str], flag: str) -> str | None:
    """Return what a flag is set to, in either spelling, None if it is not there.

    Of several the last one counts.
    """
    value = None
    for word, following in zip(command, [*command[1:], ""], strict=False):
        name, equals, rest = word.partition("=")
        if name in _spellings(flag):
            value = rest if equals else following
    return value


def pipeline_of(command: Sequence[str]) -> str:
    """Return the name of the pipeline of ours that a command walks, whether there is one or not."""
    return given(command, PIPELINE) or FIRST_PIPELINE


def without(command: tuple[str, ...], flag: str, value: str = "") -> tuple[str, ...]:
    """Return a command without a flag of ours and its value, in either spelling.

    With a `value` only where the flag's value begins with it.
    """
    begin = own_words_of_ours(command) or 0
    kept, at = list(command[:begin]), begin
    while at < len(command):
        name, equals, rest = command[at].partition("=")
        words = 1 if equals else 2
        given_value = rest if equals else "".join(command[at + 1 : at + 2])
        if name in _spellings(flag) and given_value.startswith(value):
            at += words
        else:
            kept.append(command[at])
            at += 1
    return tuple(kept)


def variables_given(command: Sequence[str]) -> dict[str, str]:
    """Return what --env sets, inside each rank, by name."""
    words = command[own_words_of_ours(command) or 0 :]
    found = {}
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, equals, rest = word.partition("=")
        variable, sign, value = (rest if equals else following).partition("=")
        if name == ENV and sign:
            found[variable] = value
    return found


def _spellings(flag: str) -> tuple[str, str]:
    return flag, "--" + flag[2:].replace("-", "_")
