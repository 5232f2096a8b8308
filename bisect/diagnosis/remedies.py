"""What to try: the same command with a safer value of a toggle of the component in question."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from ..bisection.toggles import TOGGLES, Toggle
from ..facts import Try

_LAST = ("off",)  # gives the component up: only after everything else


def tries(
    component: str | None, command: Sequence[str], avoiding: Iterable[tuple[str, str]] = ()
) -> tuple[Try, ...]:
    """Return the changes that may avoid a hang in `component`, the most promising first: before
    all others those that avoid its cause (`avoiding`: toggles and values).

    Of the component's only remedies: a probe makes nearly every hang vanish and heals none.
    """
    found: dict[tuple[str, str], Try] = {}
    for name, value in avoiding:
        entry = next((t for t in TOGGLES if t.name == name), None)
        if entry and _matters(entry, command) and _current(entry, command) != value:
            found[name, value] = _try(entry, value, command)
    for entry in TOGGLES:
        if entry.component == component and entry.kind == "remedy" and _matters(entry, command):
            for value in _safer(entry, _current(entry, command)):
                found.setdefault((entry.name, value), _try(entry, value, command))
    return tuple(found.values())


def _try(entry: Toggle, value: str, command: Sequence[str]) -> Try:
    return Try(entry.name, value, shlex.join(_with(command, entry, value)))


def _matters(entry: Toggle, command: Sequence[str]) -> bool:
    """Return whether the toggle changes anything about this command."""
    given = [_value(_spellings_of(flag), command) for flag in entry.needs]
    return bool(command) and (not given or any(value not in (None, "0") for value in given))


def _safer(entry: Toggle, current: str | None) -> list[str]:
    """Return the values that are safer than `current`, the safest first, giving up last."""
    values = list(entry.values)
    if current in values:
        values = values[values.index(current) + 1 :]
    values.reverse()
    return sorted(values, key=lambda value: value in _LAST)


def _spellings_of(flag: str) -> tuple[str, str]:
    return flag, "--" + flag[2:].replace("-", "_")


def _current(entry: Toggle, command: Sequence[str]) -> str | None:
    return _value(_spellings_of(entry.flag), command) or entry.default


def _value(spellings: Sequence[str], command: Sequence[str]) -> str | None:
    """Return what a flag is set to, None if it is not there."""
    value = None
    for word, following in zip(command, [*command[1:], ""], strict=True):
        flag, equals, rest = word.partition("=")
        if flag in spellings:
            value = rest if equals else following
    return value


def _with(command: Sequence[str], entry: Toggle, value: str) -> list[str]:
    """Return `command` with the toggle's argument replaced, or added at the end; without the run
    folder, so that following the advice does not overwrite what it rests on.
    """
    kept: list[str] = []
    skip = False
    for word in command:
        if skip:
            skip = False
            continue
        flag, equals, _ = word.partition("=")
        if flag in (*_spellings_of(entry.flag), *_spellings_of("--run-dir")):
            skip = not equals
            continue
        kept.append(word)
    return [*kept, entry.flag, value]
