"""Dumps of torch's flight recorder: pickles (TORCH_NCCL_DEBUG_INFO_TEMP_FILE) and JSON.

A pickle is read by an unpickler that makes lists, dicts, texts and numbers, and nothing else
(evidence/flight_recorder.py): what names a class or a function is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..evidence.flight_recorder import load, parse
from .dumped import Contents, Recorded, Unreadable

_DEFAULT = ("0", "", "default_pg")  # names of the group of all ranks
_MOST_RANKS = 1 << 20


def is_one(data: Any) -> bool:
    """Return whether `data` has the form of a dump."""
    return isinstance(data, Mapping) and isinstance(data.get("entries"), list | tuple)


def read(data: bytes, file: str) -> Contents:
    """Return what a pickle holds."""
    try:
        held = load(data)
    except ValueError as error:
        reason = str(error).removeprefix("no dump of the flight recorder: ")
        return _not_one(file, f"a pickle that is no dump of the flight recorder ({reason[:160]})")
    return of(held, file)


def of(held: Any, file: str) -> Contents:
    """Return what the object in a dump says."""
    log = parse(held, "flight recorder") if is_one(held) else None
    if log is None:
        return _not_one(file, 'no dump of the flight recorder: that is a dict with "entries"')
    members = max((log.groups.get(name, ()) for name in _DEFAULT), key=len)
    if not members:
        members = _members(held)
    rank = held.get("rank")
    named = rank if type(rank) is int and 0 <= rank < _MOST_RANKS else None
    return Contents(recorded=(Recorded(log, file, members, named),))


def _members(held: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the ranks of a group without a name: gloo's default one."""
    groups = held.get("pg_config")
    nameless = groups.get("") if isinstance(groups, Mapping) else None
    text = nameless.get("ranks") if isinstance(nameless, Mapping) else None
    words = text.strip("[]").split(",") if isinstance(text, str) else []
    numbers = [int(w) for word in words if (w := word.strip()).isdecimal() and len(w) < 8]
    return tuple(sorted(set(numbers)))


def _not_one(file: str, fact: str) -> Contents:
    return Contents(unreadable=(Unreadable(file, None, fact),))
