"""The nearest right word, for a wrong one."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the allowed word most like `word`, or nothing."""
    from difflib import get_close_matches

    found = get_close_matches(word, list(allowed), 1, cutoff=0.5)
    return f"; did you mean {found[0]!r}?" if found else ""
