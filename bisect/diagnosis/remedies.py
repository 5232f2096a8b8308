"""What to try: the same command with a safer value of a toggle of the component in question."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ..bisection.toggles import TOGGLES, Toggle
from ..facts import Try

_LAST = ("off",)  # gives the component up: only after everything else


def tries(component: str | None, command: Sequence[str]) -> tuple[Try, ...]:
    """Return the changes that may avoid a hang in `component`, the most promising first.

    Only remedies: a probe makes nearly every hang vanish and heals none.
    """
    found = []
    for entry in TOGGLES:
        if entry.component == component and entry.kind == "remedy" and command:
            for value in _safer(entry, _current(entry, command)):
                changed = shlex.join(_with(command, entry, value))
                found.append(Try(entry.name, value, changed))
    return tuple(found)


def _safer(entry: Toggle, current: str | None) -> list[str]:
    """Return the values that are safer than `current`, the safest first, giving up last."""
    values = list(entry.values)
    if current in values:
        values = values[values.index(current) + 1 :]
    values.reverse()
    return sorted(values, key=lambda value: value in _LAST)


def _spellings(entry: Toggle) -> tuple[str, str]:
    return entry.flag, "--" + entry.flag[2:].replace("-", "_")


def _current(entry: Toggle, command: Sequence[str]) -> str | None:
    value = entry.default
    for word, following in zip(command, [*command[1:], ""], strict=True):
        flag, equals, rest = word.partition("=")
        if flag in _spellings(entry):
            value = rest if equals else following
    return value


def _with(command: Sequence[str], entry: Toggle, value: str) -> list[str]:
    """Return `command` with the toggle's argument replaced, or added at the end."""
    kept: list[str] = []
    skip = False
    for word in command:
        if skip:
            skip = False
            continue
        flag, equals, _ = word.partition("=")
        if flag in _spellings(entry):
            skip = not equals
            continue
        kept.append(word)
    return [*kept, entry.flag, value]
