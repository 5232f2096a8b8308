"""How many examples a test of Hypothesis takes that wants more or fewer than others."""

from __future__ import annotations

from hypothesis import settings


def examples(whole: int) -> int:
    """Return `whole`; in the profile `quick` the part of it that other tests take there too."""
    return max(1, whole * settings().max_examples // 100)
