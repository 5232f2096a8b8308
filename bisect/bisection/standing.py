"""How a toggle is set in a command and its environment as they stand."""

from __future__ import annotations

from collections.abc import Mapping

from ..steering import ASKED, VARIABLE, read
from . import launcher_words, own_toggle, proxies
from .flags import given
from .toggle import Toggle
from .values import safer

_TRUE, _FALSE = ("1", "on", "yes", "true"), ("0", "off", "no", "false")


def value_as_run(
    entry: Toggle, command: tuple[str, ...], environ: Mapping[str, str], ours: bool
) -> str | None:
    if entry.launcher:
        count = launcher_words.ranks(command, environ)
        return None if count is None else str(count)
    if entry.accepts == "host":
        return entry.values[0] if proxies.are_set(environ) else entry.values[-1]
    if entry.own:
        return own_toggle.as_run(entry, command, environ)
    in_environment = _in_environment(entry, environ) or _by_torchrun(entry, command)
    if not (ours and entry.flag):
        # What a flag is by default says nothing of a script that has no such flag.
        steered = read(environ.get(VARIABLE, "")).get(entry.name, ASKED)
        steered_to = None if ours or steered == ASKED else steered
        return in_environment or steered_to or (None if entry.flag else entry.default)
    by_flag = given(command, entry.flag)
    if by_flag is not None and any(value == by_flag for value, _, _ in entry.environment):
        return by_flag  # it sets the variable itself
    current = by_flag or entry.default
    if in_environment and (current is None or in_environment in safer(entry, current)):
        return in_environment
    return current


def _by_torchrun(entry: Toggle, command: tuple[str, ...]) -> str | None:
    """Return "1" for OMP_NUM_THREADS, which torchrun sets where nobody has, for several ranks."""
    if entry.variable != "OMP_NUM_THREADS" or not launcher_words.by_torchrun(command):
        return None
    return None if launcher_words.ranks(command, {}) == 1 else "1"


def _in_environment(entry: Toggle, environ: Mapping[str, str]) -> str | None:
    """Return the value whose variables are all set in the environment."""
    if entry.variable:
        return environ.get(entry.variable) or None
    for value in reversed(entry.values):
        wanted = [(name, to) for known, name, to in entry.environment if known == value]
        if wanted and all(_same(environ.get(name), to) for name, to in wanted):
            return value
    return None


def _same(now: str | None, wanted: str) -> bool:
    """Return whether a variable says what is wanted: "true" says the same as "1"."""
    if now is None:
        return False
    return any(now.lower() in words and wanted.lower() in words for words in (_TRUE, _FALSE)) or (
        now == wanted
    )
