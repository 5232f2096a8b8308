"""What was found, started again with and without."""

from __future__ import annotations

from ..facts import Setting
from .asking import Ask, Steps


def confirmed(change: Setting, times: int) -> Steps[bool]:
    """Return whether nothing contradicts `change`: never a hang with it, never a pass without.

    Both are started `times` times, by turns, so that what changes on the machine meanwhile meets
    both; the first contradiction ends it. A crash says nothing for or against.
    """
    for number in range(1, times + 1):
        why = f"confirms, {number} of {times}: "
        if (yield Ask(change, why + "with the change", again=True)) == "hang":
            return False
        if (yield Ask({}, why + "without it", again=True)) == "pass":
            return False
    return True
