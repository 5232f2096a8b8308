"""What a process was started as, and by whom: its words, its variables, its user.

To read words and variables takes no time, but may wait for ever for a process in state D, which may
have locked its memory: who cannot be sure of that asks aside, with a limit.
"""

from __future__ import annotations

import os


def words_of(pid: int) -> tuple[str, ...]:
    """Return the command line of a process, () if it cannot be had."""
    return tuple(os.fsdecode(word) for word in _parts(pid, "cmdline") or ())


def variables_of(pid: int) -> dict[str, str] | None:
    """Return the variables that a process was started with, None if they may not be read. What it
    has set in itself since then is not among them.
    """
    variables = _parts(pid, "environ")
    if variables is None:
        return None
    pairs = (os.fsdecode(word).partition("=") for word in variables)
    return {name: value for name, sign, value in pairs if sign}


def uid_of(pid: int) -> int | None:
    """Return who a process belongs to, None if it is gone."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def _parts(pid: int, name: str) -> list[bytes] | None:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            raw = file.read().rstrip(b"\0")
    except OSError:
        return None
    return raw.split(b"\0") if raw else []
