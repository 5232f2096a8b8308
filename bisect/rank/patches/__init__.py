"""Toggles inside a script of the user's own: the arguments of well-known calls are changed on their
way, or only looked at, as HANGBISECT_STEER says. Nothing of the script is touched.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from ...base.steering import VARIABLE, parse_toggle_values

Tell = Callable[[str], None]


class WordQueue:
    """Called with a word it passes it on, or keeps it until there is a receiver.

    A toggle's call may be reached before its process is known to be a rank; a process that never is
    one passes none on.
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


# Of this process: given to begin_patching() where there is no receiver yet.
QUEUE = WordQueue()


def begin_patching(tell: Callable[[str], None]) -> None:
    """Steer this process from now on; without the variable nothing is done.

    tell() gets each of these once, when the call of a toggle is reached: "num_workers=4" (what the
    script says itself), "wandb" (which is not known), "wandb:in-code" (a variable of the
    environment would be overruled by what the script says).
    """
    wanted = parse_toggle_values(os.environ.get(VARIABLE, ""))
    if wanted:
        from .table import apply_patches

        apply_patches(wanted, tell)
