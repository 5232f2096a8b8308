"""What two starts differ in, as facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Topic = Literal["command", "ranks", "environment", "versions", "python", "machine"]


@dataclass(frozen=True)
class Start:
    """One of the two."""

    folder: str
    outcome: str  # "" where there is no verdict
    what: str  # how it went, in words: "hang at 9 WandbLogger ready: rank 1 in wandb.init"
    cause: str  # its title, "" if none is known
    world_size: int
    seconds: float | None


@dataclass(frozen=True)
class Difference:
    """A setting of which the two have different values; "" for one that is not there."""

    topic: Topic
    name: str
    a: str
    b: str
    ranks: tuple[int, ...] = ()  # of those that both have, where it is not all of them


@dataclass(frozen=True)
class Took:
    """How one of the two did with a step: `seconds` of the slowest rank; None: no rank ended it.

    `unended`: seconds that a rank was at it when the verdict was made; None: none was.
    """

    seconds: float | None
    unended: float | None = None
    stopped: tuple[int, ...] = ()  # the ranks that had not ended it

    @property
    def was_begun(self) -> bool:
        """Return whether any rank came to it."""
        return self.seconds is not None or self.unended is not None

    @property
    def was_ended(self) -> bool:
        """Return whether every rank that came to it ended it."""
        return self.seconds is not None and self.unended is None


@dataclass(frozen=True)
class TimeDifference:
    """A step, a phase or an import that took another time, or did not end."""

    title: str
    number: int | None
    depth: int  # 0: a step; 1: what lies in the step before it
    a: Took
    b: Took
    ranks: tuple[int, ...] = ()  # those that differ most, where it is not all of them
    seconds: float = 0.0  # how much longer B took; without an end, how long it had been at it


@dataclass(frozen=True)
class Comparison:
    """All of it, the most telling first."""

    a: Start
    b: Start
    times: tuple[TimeDifference, ...]
    settings: tuple[Difference, ...]
    same: Mapping[str, int]  # how much of each topic was compared, and is the same
    missing: tuple[str, ...]  # sentences: what could not be compared

    @property
    def is_same(self) -> bool:
        """Return whether nothing differs beyond noise."""
        return not self.times and not self.settings and self.a.what == self.b.what
