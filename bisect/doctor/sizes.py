"""Bytes in words."""

from __future__ import annotations

MB, GB = 1 << 20, 1 << 30


def size(number: int) -> str:
    """Return bytes in words: "64 MB", "1.5 TB"."""
    for unit, name in ((1 << 40, "TB"), (GB, "GB"), (MB, "MB")):
        if number >= unit:
            value = number / unit
            return f"{value:.1f} {name}" if value < 10 and value % 1 else f"{value:.0f} {name}"
    return f"{number // 1024} KB"
