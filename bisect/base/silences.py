"""The silences of a rank within one step, as looks saw them.

A rank that asks a server which takes 20 seconds for each answer shows nothing for as long, again
and again. That earlier silences ended by themselves says that this one may, too.
"""

from __future__ import annotations


class Silences:
    """Of one rank in one step. Times are monotonic."""

    def __init__(self) -> None:
        """No look has been taken."""
        self.longest = 0.0  # seconds, of those that ended by themselves
        self._worked_at = 0.0
        self._since = 0.0
        self._seen_at: float | None = None  # the last look that saw the one that lasts; None: none

    def sees_still(self, moved_at: float, now: float) -> None:
        """A look at `now` saw that nothing has moved since `moved_at`, nor computes."""
        self._since, self._seen_at = max(moved_at, self._worked_at), now

    def sees_work(self, now: float) -> None:
        """A look saw it burn CPU: no silence, and no sign either that one has ended."""
        self._worked_at, self._seen_at = now, None

    def ends(self, at: float, most: float) -> None:
        """It moves again at `at`. Of the time since the last look at most `most` seconds count: it
        may have moved meanwhile.
        """
        if self._seen_at is not None and at > self._seen_at:
            self.longest = max(self.longest, min(at, self._seen_at + most) - self._since)
        self._seen_at = None
