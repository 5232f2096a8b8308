"""What processes of a job have written down that end by an error and have no connection to the
monitor (rank/watched/failed_targets.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ..base.place import LARGEST_TARGETS_FILE, TARGETS_FILE

if TYPE_CHECKING:
    from pathlib import Path


class FailedTarget(NamedTuple):
    """A process, and the first error that it was about to end by."""

    pid: int
    parent: int
    words: tuple[str, ...]  # of its command line, or its title
    at: float  # monotonic
    error: str  # in a line
    traceback: str


def read_failed_targets(folder: Path) -> Mapping[int, FailedTarget]:
    """Return those of all processes that have `folder` for the socket of their monitor, by pid."""
    found: dict[int, FailedTarget] = {}
    lines: list[bytes] = []
    with suppress(OSError), (folder / TARGETS_FILE).open("rb") as file:
        lines = file.read(LARGEST_TARGETS_FILE).split(b"\n")[:-1]
    for line in lines:
        with suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):
            told = json.loads(line)
            one = FailedTarget(
                int(told["pid"]),
                int(told["parent"]),
                tuple(map(str, told["words"])),
                float(told["at"]),
                str(told["error"]),
                str(told["traceback"]),
            )
            found.setdefault(one.pid, one)
    return found
