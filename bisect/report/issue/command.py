"""The command of a run, exactly: as a line that a shell takes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def quoted(words: Sequence[str]) -> str:
    """Return a command line on one line: what cannot be printed stands as bash's $'...' has it."""
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + "".join(c if c.isprintable() else _escape(c) for c in escaped) + "'"


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x80 else f"\\U{number:08x}"
