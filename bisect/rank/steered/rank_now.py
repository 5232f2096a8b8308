"""Which rank this process is, as it stands at this moment."""

from __future__ import annotations

import sys
from typing import Any

from ..place import find_place


def rank_now() -> int:
    """Return the rank: of the process group where there is one, else as the launcher says."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return find_place().rank
