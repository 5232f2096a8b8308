"""How values of this pipeline's own arguments are read."""

from __future__ import annotations

import re
from collections.abc import Callable

from ...errors import UsageError

_UNITS = {"K": 1, "M": 2, "G": 3, "T": 4}


def names(value: str) -> tuple[str, ...]:
    """Return the names of a list with commas."""
    return tuple(name.strip() for name in value.split(",") if name.strip())


def memory_size(flag: str) -> Callable[[str], int]:
    """Return a reader of a size in bytes, of 2**30 each for GB."""

    def read(value: str) -> int:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT])I?B", value.upper())
        if match is None or not float(match[1]):
            raise UsageError(f"{flag} cannot be {value!r}: it is a size, as 24GB or 800MB")
        return int(float(match[1]) * 1024 ** _UNITS[match[2]])

    return read
