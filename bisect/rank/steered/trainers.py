"""Trainers: Lightning's strategy, accelerator and callbacks, and the callbacks of transformers'."""

from __future__ import annotations

import os
from typing import Any

from ...steering import ASKED
from .call import Call, Said

# Callbacks without which the training itself is another one, or a script that asks them back for
# what they know fails: those of these classes, and of classes made from them, stay.
NEEDED = {
    *("Checkpoint", "EarlyStopping", "BaseFinetuning", "GradientAccumulationScheduler"),
    *("StochasticWeightAveraging", "WeightAveraging", "BasePredictionWriter"),
    *("DefaultFlowCallback", "EarlyStoppingCallback"),
}
# Strategies that start processes themselves: not what "ddp" is.
_STARTERS = ("spawn", "fork", "notebook")


def strategy(call: Call, value: str) -> Said:
    """Give Trainer or Fabric that strategy; one that is of this kind stays with its options."""
    now = _kind(call.get("strategy", "auto"))
    if value not in (ASKED, now):
        call.set("strategy", value)
    return Said(now)


def accelerator(call: Call, value: str) -> Said:
    """Let the model run on that; on the CPU on as many processes as the launcher started."""
    now = call.get("accelerator", "auto")
    if value != ASKED:
        call.set("accelerator", value)
        devices, started = call.get("devices", "auto"), os.environ.get("LOCAL_WORLD_SIZE", "")
        if value == "cpu" and not _is_count(devices):
            ranks = len(devices) if isinstance(devices, list) else 1
            call.set("devices", int(started) if started.isdigit() else ranks)
    return Said(now if isinstance(now, str) else "gpu", in_code=True)


def callbacks(call: Call, value: str) -> Said:
    """Leave out the callbacks that are not needed."""
    given = call.get("callbacks")
    listed = [] if given is None else given if isinstance(given, list) else [given]
    kept = [one for one in listed if is_needed(one)]
    if value == "none" and len(kept) < len(listed):
        call.set("callbacks", kept)
    return Said("" if len(kept) < len(listed) else "none")


def is_needed(callback: Any) -> bool:
    """Return whether a callback, or a class of callbacks, is of a class that is NEEDED."""
    made_from = (callback if isinstance(callback, type) else type(callback)).__mro__
    return any(one.__name__ in NEEDED for one in made_from)


def _kind(strategy: Any) -> str:
    """Return what kind a strategy is: "ddp" for every DDP with ranks that a launcher starts."""
    name = strategy if isinstance(strategy, str) else type(strategy).__name__
    is_ddp = name == "DDPStrategy" or name.startswith("ddp")
    started_by_itself = any(word in name for word in _STARTERS) or any(
        word in str(getattr(strategy, "_start_method", "")) for word in _STARTERS
    )
    return "ddp" if is_ddp and not started_by_itself else name


def _is_count(devices: object) -> bool:
    return str(devices).isdigit() and int(str(devices)) > 0
