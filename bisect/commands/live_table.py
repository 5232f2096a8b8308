"""Internal: draw the table of ranks on a terminal. A monitor starts it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence


def run(argv: Sequence[str]) -> int:
    """Draw until stdin ends."""
    from ..report.live import drawer

    start = json.loads(argv[0])
    drawer.run(start["ranks"], start["launcher"])
    os._exit(0)  # at once: a monitor waits for it
