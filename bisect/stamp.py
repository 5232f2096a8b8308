"""When something was started, as the names of its folders say it."""

from __future__ import annotations

import time


def stamp() -> str:
    """Return the time now in UTC, for a file's name: "20261122T045131Z" (ISO 8601, basic)."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
