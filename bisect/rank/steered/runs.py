"""W&B: which ranks start it, and whether it talks to its server.

WandbLogger starts it on rank 0 alone, so what it does is left as it is.
"""

from __future__ import annotations

from typing import Any

from .call import Call, Said
from .rank_now import rank_now

_MODES = {"offline": "offline", "off": "disabled"}
_SAFE = {"offline": "offline", "dryrun": "offline", "disabled": "off"}


def start(call: Call, value: str) -> Said | None:
    """wandb.init: on rank 0 alone (the others get a disabled run), offline, or disabled. A mode is
    given only where the script gives one: else WANDB_MODE says it.
    """
    rank, mode = rank_now(), _mode(call)
    if mode == "disabled" and rank:
        return None  # the script itself starts nothing here
    if value == "rank0" and rank:
        call.set("mode", "disabled")
    elif value in _MODES and mode is not None:
        call.set("mode", _MODES[value])
    now = _SAFE.get(mode or "", "every-rank" if rank else "rank0")
    return Said(now, in_code=mode is not None)


def login(call: Call, value: str) -> Said:
    """wandb.login: on rank 0 alone."""
    rank = rank_now()
    if value == "rank0" and rank:
        call.answer_with(True)
    return Said("every-rank" if rank else "rank0")


def _mode(call: Call) -> str | None:
    """Return the mode that the script gives, itself or in its settings."""
    settings: Any = call.get("settings")
    of_settings = settings.get("mode") if isinstance(settings, dict) else _set_in(settings)
    mode = call.get("mode") or of_settings
    return None if mode is None else str(mode)


def _set_in(settings: Any) -> Any:
    """Return the mode of a wandb.Settings, None where it only has its default."""
    named = getattr(settings, "model_fields_set", ())
    return getattr(settings, "mode", None) if "mode" in named else None
