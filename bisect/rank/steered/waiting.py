"""Words that wait until there is somebody to tell them to."""

from __future__ import annotations

from collections.abc import Callable

Tell = Callable[[str], None]


class Waiting:
    """Called with a word it tells it, or keeps it until it is known whom to tell.

    A toggle's call may be reached before its process is known to be a rank; a process that never is
    one tells nobody.
    """

    def __init__(self) -> None:
        self._tell: Tell | None = None
        self._kept: list[str] = []

    def __call__(self, word: str) -> None:
        """Tell `word`, now or later."""
        self._kept.append(word)
        self.through(self._tell)

    def through(self, tell: Tell | None) -> None:
        """Tell what is kept, and what comes, through `tell`; None: keep it from now on."""
        self._tell = tell
        while tell is not None and self._kept:
            tell(self._kept.pop(0))
