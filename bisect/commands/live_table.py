"""Internal: draw the table of ranks on a terminal. A monitor starts it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence


def run(argv: Sequence[str]) -> int:
    """Draw until stdin ends; where there is no rich, or it does not do, there is no table."""
    start = json.loads(argv[0])
    sys.path += [path for path in start["path"] if path and path not in sys.path]
    try:
        from ..report.live import drawer
    except ImportError:
        return 0
    drawer.run(start["ranks"], start["launcher"])
    os._exit(0)  # at once: a monitor waits for it
