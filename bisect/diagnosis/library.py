"""networkx, if it can be had: it lies on a disk, and a disk may be what hangs."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from threading import Thread
from types import ModuleType

_LIMIT = 2.0  # seconds; a tenth of one is usual


@lru_cache(maxsize=1)
def networkx() -> ModuleType | None:
    """Return networkx, None if it cannot be loaded in time. Not loaded before it is asked for:
    healthy jobs never need it.
    """
    found: list[ModuleType] = []

    def load() -> None:
        try:
            found.append(import_module("networkx"))
        except Exception:  # not there, or half of it: there is a verdict without it, too
            return

    loading = Thread(target=load, daemon=True)
    loading.start()
    loading.join(_LIMIT)
    return found[0] if found else None
