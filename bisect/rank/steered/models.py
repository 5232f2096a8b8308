"""Models of transformers: attention, placement, generation config, activation checkpointing."""

from __future__ import annotations

import os
import sys
from typing import Any

from ...steering import ASKED
from .call import Call, Said

_PLACED = ("auto", "balanced", "balanced_low_0", "sequential")  # by accelerate, over all devices


def attention(call: Call, value: str) -> Said:
    """Let the model compute attention in that way: its constructor takes it from the config."""
    config = call.get("config")
    now = getattr(config, "_attn_implementation", None)
    if value != ASKED:
        config._attn_implementation = value
    return Said(now if isinstance(now, str) else "")


def device_map(call: Call, value: str) -> Said:
    """Let nobody place the layers: the whole model goes to the rank's own device."""
    given = call.get("device_map")
    placed = given in _PLACED if isinstance(given, str) else len(given) > 1 if given else False
    if value == "none" and placed:
        call.set("device_map", _own_device())
    return Said("auto" if placed else "none")


def generation_config(call: Call, value: str) -> Said:
    """Take the generation config from the cache alone, or make it from its arguments alone."""
    now = "local-files-only" if call.get("local_files_only") else "from-pretrained"
    if value == "local-files-only":
        call.set("local_files_only", True)
    elif value == "direct":
        made = call.args[0]()
        unused = made.update(**_own_arguments(call))
        call.answer_with((made, unused) if call.get("return_unused_kwargs") else made)
    return Said(now)


def gradient_checkpointing(call: Call, value: str) -> Said:
    """Leave activations in memory."""
    if value == "off":
        call.answer_with(None)
    return Said("on")


def _own_device() -> dict[str, int] | None:
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    local = os.environ.get("LOCAL_RANK", "0")
    return {"": int(local) if local.isdigit() else 0}


def _own_arguments(call: Call) -> dict[str, Any]:
    """Return the arguments of from_pretrained that are values of the config."""
    about = {"config_file_name", "cache_dir", "force_download", "local_files_only", "token"}
    about |= {"revision", "return_unused_kwargs", "subfolder", "proxies", "resume_download"}
    about |= {"pretrained_model_name", "trust_remote_code", "use_auth_token"}
    return {n: v for n, v in call.kwargs.items() if n not in about and not n.startswith("_")}
