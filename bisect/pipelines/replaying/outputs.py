"""What forwards returned, on disk: what is compared with, and what is kept for later."""

from __future__ import annotations

import os
import time
from typing import Any

from ...captures.listing import outputs_beside
from ...captures.reading import Capture, load
from ...captures.writing import file_of
from ...whole_file import write_whole

MADE = "made"  # the name of an input that was made


def before(path: str, folder: str | None) -> Capture | None:
    """Return what the call of an input at `path` returned: when it was captured, or, with a
    `folder`, when outputs were kept there. None if nothing is there. Raises Unreadable.
    """
    beside = outputs_beside(path)
    place = os.path.join(folder, os.path.basename(beside)) if folder else beside
    return load(place) if os.path.exists(place) else None


def keep(output: Any, folder: str, name: str, module: Any, rank: int, ranks: int) -> None:
    """Write what the input `name` gave into `folder`. Raises OSError."""
    data = file_of(
        module,
        output,
        kind="outputs",
        name=type(module).__name__,
        rank=rank,
        world_size=ranks,
        at=time.time(),
    )
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, os.path.basename(outputs_beside(name)))
    write_whole(path, data)
