"""Sizes, rates and times in words, as the lines of a generation say them."""

from __future__ import annotations

MB, GB = 1 << 20, 1 << 30


def size(number: float) -> str:
    """Return bytes in words: "1.3 GB" (of 2**30), "640 kB"."""
    for unit, name in ((GB, "GB"), (MB, "MB"), (1 << 10, "kB")):
        if number >= unit:
            value = number / unit
            return f"{value:.2f} {name}" if value < 10 else f"{value:.0f} {name}"
    return f"{number:.0f} bytes"


def rate(bytes_a_second: float) -> str:
    """Return "1.3 GB/s"."""
    return f"{size(bytes_a_second)}/s"


def duration(seconds: float) -> str:
    """Return "45.2 s, 0.8 min"; below half a minute without the minutes, below a second finer."""
    if seconds < 1:
        return f"{seconds:.3f} s"
    if seconds < 30:
        return f"{seconds:.1f} s"
    return f"{seconds:.1f} s, {seconds / 60:.1f} min"


def counted(number: int, what: str) -> str:
    """Return "1 token" or "12 tokens"."""
    return f"{number} {what}{'' if number == 1 else 's'}"
