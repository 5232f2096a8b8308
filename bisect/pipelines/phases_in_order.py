"""The phases of a step, announced as each begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..rank.context import Context


class PhasesInOrder:
    """Announces the phases of the step that is under way: each once, in the order of the table and
    never backwards, or who asks whether a job is past one would be told so too early.
    """

    def __init__(self, context: Context) -> None:
        """Speak through `context`, whose step is asked for its phases when the first one begins."""
        self._context = context
        self._left: list[str] | None = None

    def begin(self, name: str) -> None:
        """Announce `name`, unless it or a later one was announced before."""
        if self._left is None:
            self._left = [phase.name for phase in self._context.step.phases]
        if name in self._left:
            del self._left[: self._left.index(name) + 1]
            self._context.phase(name)
