"""DataLoaders: how many workers, how they are started, who pins batches; and what batches hold."""

from __future__ import annotations

import multiprocessing
from typing import Any

from ...steering import ASKED
from .call import Call, Said

# What torch refuses without workers (torch/utils/data/dataloader.py).
_OF_WORKERS = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "multiprocessing_context": None,
    "timeout": 0,
}


def num_workers(call: Call, value: str) -> Said:
    """Give the loader so many workers."""
    now = call.get("num_workers", 0)
    if value.isdigit():
        call.set("num_workers", int(value))
        for name, none in _OF_WORKERS.items() if int(value) == 0 else ():
            call.reset(name, none)
    return Said(str(now))


def worker_start(call: Call, value: str) -> Said | None:
    """Let the loader start its workers by that method; one without workers starts none."""
    if not call.get("num_workers", 0):
        return None
    now = _method(call.get("multiprocessing_context"))
    if value != ASKED:
        call.set("multiprocessing_context", value)
    return Said(now)


def pin_memory(call: Call, value: str) -> Said:
    """Let the loader pin its batches, or not."""
    now = "on" if call.get("pin_memory", False) else "off"
    if value != ASKED:
        call.set("pin_memory", value == "on")
    return Said(now)


def packing(call: Call, value: str) -> Said:
    """Let texts be joined into full rows, or not (SFTConfig of trl)."""
    now = "on" if call.get("packing", False) else "off"
    if value != ASKED:
        call.set("packing", value == "on")
        call.reset("eval_packing", value == "on")
    return Said(now)


def _method(context: Any) -> str:
    """Return how a context starts processes. Asked in another way, multiprocessing takes its
    default for chosen, and the script can choose none any more.
    """
    if isinstance(context, str):
        return context
    asked = context if hasattr(context, "get_start_method") else multiprocessing
    chosen = asked.get_start_method(allow_none=True)
    return str(chosen or multiprocessing.get_all_start_methods()[0])
