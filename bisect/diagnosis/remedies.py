"""What to try: the same command with a safer value of a toggle of the component in question."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..bisection.applying import applied, as_run, pasted
from ..bisection.toggles import TOGGLES, Toggle
from ..bisection.values import as_read, matters, safer, why_not
from ..facts import Try

_LAST = ("off",)  # gives the component up: only after everything else


def tries(
    component: str | None,
    command: Sequence[str],
    avoiding: Iterable[tuple[str, str]] = (),
    ours: bool = True,
) -> tuple[Try, ...]:
    """Return the changes that may avoid a hang in `component`, the most promising first: before
    all others those that avoid its cause (`avoiding`: toggles and values). `ours`: the command
    walks a pipeline of ours.

    Of the component's only remedies: a probe makes nearly every hang vanish and heals none.
    """
    found: dict[tuple[str, str], Try] = {}
    table = as_read(TOGGLES, command, ours)
    current = as_run(command, {}, TOGGLES, ours=ours)
    for name, value in avoiding:
        entry = next((t for t in table if t.name == name), None)
        if entry and current.get(name) != value and _changes(entry, value, command, ours):
            found[name, value] = _try(entry, value, command, ours)
    for entry in table:
        # A variable only where the cause names it: by its component alone nobody would try ten.
        if entry.component == component and entry.kind == "remedy" and entry.flag:
            for value in _most_promising_first(safer(entry, current.get(entry.name))):
                if _changes(entry, value, command, ours):
                    found.setdefault((entry.name, value), _try(entry, value, command, ours))
    return tuple(found.values())


def _try(entry: Toggle, value: str, command: Sequence[str], ours: bool) -> Try:
    setting = applied(command, {entry.name: value}, TOGGLES, ours=ours)
    return Try(entry.name, value, pasted(setting))


def _changes(entry: Toggle, value: str, command: Sequence[str], ours: bool) -> bool:
    """Return whether a value can be applied to this command, and changes anything about it."""
    may = bool(command) and matters(entry, command)
    return may and not why_not(entry, value, command, {}, ours)


def _most_promising_first(values: Sequence[str]) -> list[str]:
    """Return the safest first, giving up last."""
    safest_first = values[::-1]
    return sorted(safest_first, key=lambda value: value in _LAST)
