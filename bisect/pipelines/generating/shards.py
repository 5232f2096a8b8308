"""How far the reading of a checkpoint is: which of its files have been read. Pure.

A checkpoint is some files (shards), each with some of the weights. That all of them are read is not
the end of loading: what was read is placed, and more is looked up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from .words import counted, duration, rate, size


@dataclass(frozen=True)
class Checkpoint:
    """The files of a checkpoint, by name, with their size in bytes, and which has which weight.

    Where there is a single file, `weights` may be empty: all of them are in it.
    """

    files: Mapping[str, int]
    weights: Mapping[str, str]

    @property
    def bytes(self) -> int:
        return sum(self.files.values())


class Progress:
    """Counts what has been read of a checkpoint."""

    def __init__(self, checkpoint: Checkpoint, total: int) -> None:
        """`total`: how many weights, or files, a loader says that it will read."""
        self.checkpoint = checkpoint
        self.total = total
        self.done = 0
        self._left = Counter(checkpoint.weights.values())
        self._known = 0  # weights whose file is known

    def read(self, weight: str | None) -> bool:
        """Note that a weight was read, or a file; return whether a file is complete by that."""
        before = self.shards
        self.done += 1
        file = self.checkpoint.weights.get(weight or "")
        if file is not None:
            self._known += 1
            self._left[file] -= 1
        return self.shards > before

    @property
    def shards(self) -> int:
        """How many files are read: those of which each weight is; where the loader renames or joins
        weights, by their share of all that it reads.
        """
        files = len(self.checkpoint.files)
        if self.done >= self.total:
            return files
        if self._known:
            return min(sum(not left for left in self._left.values()), files - 1)
        return min(files * self.done // self.total, files - 1)

    def in_words(self, seconds: float) -> str:
        """Return how far it is after so many seconds, and how long the rest takes at that rate."""
        files = len(self.checkpoint.files)
        line = f"{self.shards} of {files} shards read, {self.done} of {self.total} weights"
        share = self.done / self.total if self.total else 1.0
        speed = share * self.checkpoint.bytes / seconds if seconds > 0 else 0.0
        if not speed:
            return line
        left = seconds * (1 - share) / share
        rest = f", about {duration(left)} left" if share < 1 else ""
        return f"{line}, {duration(seconds)} at {rate(speed)}{rest}"


def expected(checkpoint: Checkpoint, bytes_a_second: float | None) -> str:
    """Return what to expect of reading it, at a rate that was measured (None: it was not)."""
    what = f"{size(checkpoint.bytes)} in {counted(len(checkpoint.files), 'shard')}"
    if not bytes_a_second:
        return f"{what}; at a rate that is not known"
    seconds = checkpoint.bytes / bytes_a_second
    return f"{what}; about {duration(seconds)} at {rate(bytes_a_second)}, as measured"
