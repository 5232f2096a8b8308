"""What an input gave, compared with what it gave before.

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...captures.reading import Unreadable
from .difference import Difference, difference
from .outputs import before
from .turns import Turn

if TYPE_CHECKING:
    from ...rank.context import Context


class Comparer:
    """Compares output by output; tells once what cannot be compared."""

    def __init__(self, context: Context) -> None:
        """Compare with what was captured, or with --outputs."""
        self._context = context
        self._told: set[str] = set()

    def difference(self, turn: Turn, output: Any) -> Difference | None:
        """Return how an output differs from what the same input gave before, None where nothing is
        known of that.
        """
        context, folder = self._context, self._context.args.outputs
        if turn.made and not folder:
            return None
        try:
            known = before(turn.path, folder)
        except Unreadable as error:
            context.say(f"Not compared: {error}")
            return None
        if known is None:
            if folder:
                self._once("missing", f"Not compared: {folder} has no outputs of {turn.given.name}")
            return None
        if known.record.raised:
            raised = known.record.raised[:200]
            context.say(f"{turn.given.name}: its forward raised {raised} before")
            return None
        found = difference(output, known.value, turn.given.here, turn.given.there)
        if found.apart:
            self._once("apart", f"{turn.given.name}: not compared, for {why_apart(found)}")
        return found

    def _once(self, what: str, text: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._context.say(text)


def too_much(found: Difference | None, tolerance: float | None) -> str | None:
    """Return in words that a difference is above the tolerance, or cannot be told; None where it is
    not, or no tensor is on either side.
    """
    if found is None or tolerance is None:
        return None
    if found.largest is None:
        if not found.apart:
            return None
        return f"cannot be compared, for {why_apart(found)}"
    if found.largest <= tolerance:
        return None
    return (
        f"differs by {found.largest:g} in {found.where or 'its output'}, more "
        f"than --tolerance {tolerance:g}"
    )


def why_apart(found: Difference) -> str:
    """Return why tensors were not compared."""
    names = ", ".join(name or "the output" for name in found.apart[:3])
    return f"it is of another shape, or in one of the two outputs alone: {names}"
