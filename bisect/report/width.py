"""How wide the terminal is that an answer goes to."""

from __future__ import annotations

import os


def terminal_width(descriptor: int = 1) -> int | None:
    """Return the columns of the terminal behind a descriptor, None where there is none, or it does
    not say: nothing is cut then.
    """
    try:
        return os.get_terminal_size(descriptor).columns or None
    except OSError:
        return None
