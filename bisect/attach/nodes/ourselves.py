"""The command by which another machine, with the same files as this one, is asked for its facts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

# Run as a program it starts us, installed or not.
PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def asking(span: float | None, only: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the words of that command, by our own interpreter and folder."""
    return (sys.executable, PACKAGE, *words(span, only))


def words(span: float | None, only: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return what follows the program's name: `only` are variables that ranks of the job have."""
    limited = () if span is None else ("--for", f"{span:g}")
    chosen = tuple(f"--in={name}={value}" for name, value in (only or {}).items())
    return ("attach", "--facts", *limited, *chosen)
