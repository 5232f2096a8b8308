"""How many starts a search for what avoids a hang takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .toggle import Toggle

CONFIRM = 3  # starts with what was found, and as many without it


@dataclass(frozen=True)
class Expected:
    """How many starts a search takes."""

    about: int
    most: int  # if one toggle is to blame


def expected(remedies: Sequence[Toggle], confirm: int = CONFIRM) -> Expected:
    """Return how many starts to expect: as it is, all safe, the search, walking back, confirming.

    About: a suspect of the diagnosis is it. Most: one toggle is, and nothing points to it.
    """
    back = max((len(toggle.values) - 2 for toggle in remedies), default=0)
    log = math.ceil(math.log2(max(2, len(remedies))))
    return Expected(4 + back + 2 * confirm, 2 * log + 6 + back + 2 * confirm)
