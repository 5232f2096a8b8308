"""The silences of a rank within one step, as looks saw them.

A rank that asks a server which takes 20 seconds for each answer shows nothing for as long, again
and again. That earlier silences ended by themselves says that this one may, too.
"""

from __future__ import annotations

from .lazy_dataclass import dataclass


@dataclass
class Silences:
    """Of one rank in one step. Times are monotonic."""

    longest: float = 0.0  # seconds, of those that ended by themselves
    worked_at: float = 0.0
    heard_at: float = 0.0  # when something came to it of which nobody can say what
    since: float = 0.0  # of the one that lasts
    seen_at: float | None = None  # by the last look; None: none lasts

    @property
    def lasted(self) -> float:
        """For how long (seconds) looks have seen the one that lasts; 0.0 if none does."""
        return 0.0 if self.seen_at is None else self.seen_at - self.since

    def sees_still(self, moved_at: float, now: float) -> None:
        """A look at `now` saw that nothing has moved since `moved_at`, nor computes."""
        self.since, self.seen_at = max(moved_at, self.worked_at, self.heard_at), now

    def sees_work(self, now: float) -> None:
        """A look saw it burn CPU: no silence, and no sign either that one has ended."""
        self.worked_at, self.seen_at = now, None

    def hears(self, at: float) -> None:
        """Something came at `at`, and it waits on: not silent, and no sign of getting on either."""
        self.heard_at, self.seen_at = at, None

    def ends(self, at: float, most: float) -> None:
        """It moves again at `at`. Of the time since the last look at most `most` seconds count: it
        may have moved meanwhile.
        """
        if self.seen_at is not None and at > self.seen_at:
            self.longest = max(self.longest, min(at, self.seen_at + most) - self.since)
        self.seen_at = None
