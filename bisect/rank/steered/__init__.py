"""Toggles inside a script of the user's own: the arguments of well-known calls are changed on their
way, or only looked at, as HANGBISECT_STEER says. Nothing of the script is touched.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from ...steering import VARIABLE, read
from .waiting import Waiting

TOLD = (
    Waiting()
)  # of this process: what is to be given to begin() where nobody is there to hear yet


def begin(tell: Callable[[str], None]) -> None:
    """Steer this process from now on; without the variable nothing is done.

    tell() gets each of these once, when the call of a toggle is reached: "num_workers=4" (what the
    script says itself), "wandb" (which is not known), "wandb:in-code" (a variable of the
    environment would be overruled by what the script says).
    """
    wanted = read(os.environ.get(VARIABLE, ""))
    if wanted:
        from .changing import steer

        steer(wanted, tell)
