"""The settings of a toggle that a command has now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..base import command_words
from ..base.command_words import given, pipeline_of
from ..base.errors import nearest
from .toggle import HOST, Toggle


def safest(toggle: Toggle) -> str:
    """Return its last value."""
    return toggle.values[-1]


def safer(toggle: Toggle, current: str | None) -> tuple[str, ...]:
    """Return the values that are safer than `current`, in order; without one all that change it."""
    values = toggle.values
    if toggle.accepts == "count" and current is not None and current.isdigit():
        return tuple(v for v in values if v.isdigit() and int(v) < int(current))
    if current in values:
        return values[values.index(current) + 1 :]
    return values if toggle.accepts == "count" else values[1:]


def matters(entry: Toggle, command: Sequence[str]) -> bool:
    """Return whether the flags are given without which a toggle changes nothing."""
    values = [given(command, flag) for flag in entry.needs]
    return not values or any(value not in (None, "0") for value in values)


def why_unread(entry: Toggle, command: Sequence[str]) -> str:
    """Return why a toggle changes nothing about the pipeline that a command walks, or ""."""
    name = pipeline_of(command)
    return "" if entry.own or name in entry.pipelines else f"the pipeline {name} does not read it"


def as_read(table: Sequence[Toggle], command: Sequence[str], ours: bool) -> tuple[Toggle, ...]:
    """Return the toggles as the pipeline of ours reads them that a command walks, if it does."""
    name = pipeline_of(command)
    return tuple(entry.read_by(name) for entry in table) if ours else tuple(table)


def why_not(
    entry: Toggle, value: str, command: Sequence[str], environ: Mapping[str, str], ours: bool
) -> str:
    """Return why a value cannot be applied to a command, or ""."""
    wrong = _wrong(entry, value)
    if wrong:
        return wrong
    if ours and (unread := why_unread(entry, command)):
        return unread
    if entry.launcher:
        return command_words.why_not(tuple(command), environ)
    if ours and entry.flag:
        return ""
    has_words = any(known == value for known, _ in entry.words)
    if entry.own or has_words or entry.variable or entry.accepts == "host":
        return ""
    if any(known == value for known, _, _ in entry.environment) or entry.change_in_code(value):
        return ""
    return "nothing outside a script of yours says it; a scenario file can name how"


def with_host(value: str, host: str | None) -> str:
    """Return the value with its host, if it wants one and there is one."""
    return f"{value}{HOST}{host}" if host and value == EXCEPTED else value


def variables(entry: Toggle, value: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a value sets in the environment, beside what is set there."""
    if entry.accepts == "host":
        return proxy_variables(value, environ)
    if entry.variable:
        return {entry.variable: value}
    return {name: set_to for known, name, set_to in entry.environment if known == value}


def _wrong(entry: Toggle, value: str) -> str:
    """Return what is wrong with a value, or ""."""
    name, sign, host = value.partition(HOST)
    if entry.accepts == "host" and sign and name in entry.values:
        return "" if host else f"it wants a host, {name}{HOST}HOST"
    if value in entry.values:
        return f"it wants a host, {value}{HOST}HOST" if _wants_host(entry, value) else ""
    if entry.accepts in ("text", "strategy"):
        return "" if value else "the value is empty"
    if entry.accepts == "count":
        least = 1 if entry.launcher else 0
        is_one = value.isascii() and value.isdigit() and int(value) >= least
        return "" if is_one else f"it is a whole number from {least}"
    return f"it is one of {', '.join(entry.values)}{nearest(value, entry.values)}"


def _wants_host(entry: Toggle, value: str) -> bool:
    return entry.accepts == "host" and value == EXCEPTED


EXCEPTED, OFF = "excepted", "off"
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_EXCEPTIONS = ("NO_PROXY", "no_proxy")
# What each value changes, in words.
VARIABLES = {EXCEPTED: " and ".join(_EXCEPTIONS), OFF: ", ".join(_PROXIES) + " (and in capitals)"}


def are_set(environ: Mapping[str, str]) -> bool:
    """Return whether any request goes through a proxy."""
    return any(environ.get(name) for name in _both(_PROXIES))


def proxy_variables(value: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what to set for "excepted:HOST", "off"; nothing for any other value."""
    name, _, host = value.partition(":")
    if name == OFF:
        return dict.fromkeys(_both(_PROXIES), "")
    if name != EXCEPTED:
        return {}
    hosts = [h.strip() for name in _EXCEPTIONS for h in environ.get(name, "").split(",")]
    every = ",".join(dict.fromkeys([*(h for h in hosts if h), host]))
    return dict.fromkeys(_EXCEPTIONS, every)


def _both(names: tuple[str, ...]) -> list[str]:
    return [spelling for name in names for spelling in (name, name.upper())]
