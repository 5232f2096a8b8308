"""What ranks printed last, where it goes to a file of their own: torchrun's --redirects and --tee,
a batch system's output. Any of it may block with the disk: to be called aside.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .its_files import last_lines

_OF_OURS = re.compile(r"^(?:\x1b\[\d+m)?\[\d\d:\d\d:\d\d\.\d{3}\]\[\+")  # rank/lines.py
# Where torchrun lets a rank's output go, next to its error file
# (torch/distributed/elastic/multiprocessing/api.py, LogsSpecs).
_OF_TORCHRUN = ("stderr.log", "stdout.log")


@dataclass(frozen=True)
class Printer:
    """A rank: its process, and the error file that its agent gave it."""

    rank: int
    pid: int | None
    error_file: str | None = None


def printed(ranks: Iterable[Printer]) -> dict[int, tuple[str, ...]]:
    """Return the last lines that ranks printed, without ours, by rank; none of a file that several
    ranks write to: whose line it is cannot be told.
    """
    files = {one.rank: _files(one) for one in ranks}
    shared = Counter(identity for of_rank in files.values() for identity in of_rank)
    found = {}
    for rank, of_rank in files.items():
        own = [path for identity, path in of_rank.items() if shared[identity] == 1]
        lines = tuple(n for path in own for n in last_lines(path) if not _OF_OURS.match(n))
        if lines:
            found[rank] = lines
    return found


def _files(one: Printer) -> Mapping[tuple[int, int], str]:
    """Return where a rank's standard error and output go: identity and path of each file."""
    paths = [f"/proc/{one.pid}/fd/{number}" for number in (2, 1)] if one.pid else []
    if one.error_file:
        folder = os.path.dirname(one.error_file)
        paths += [os.path.join(folder, name) for name in _OF_TORCHRUN]
    found: dict[tuple[int, int], str] = {}
    for path in paths:
        try:
            about = os.stat(path)
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(about.st_mode):
            found.setdefault((about.st_dev, about.st_ino), path)
    return found
