"""Step 4: refuse what is known not to work, before anything is loaded."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..budget.quantized import is_linear
from ..impossible import not_installed, refuse
from .divided import divided
from .impossible import IMPOSSIBLE, Settings

if TYPE_CHECKING:
    from ...rank.context import Context
    from .configuration import Wanted

_LIBRARIES = ("bitsandbytes",)


def preflight(context: Context) -> Settings:
    """Return what is known. Raises UsageError for combinations that cannot work."""
    wanted: Wanted = context.products["configuration"]
    placed = divided(context, wanted)
    facts = Settings(
        plan=wanted.plan,
        device=wanted.device.type,
        device_map=wanted.device_map,
        offloaded=placed.offloaded if placed else (),
        devices=len(set(placed.modules.values())) if placed else 1,
        launched="LOCAL_RANK" in os.environ,
        linear=_linear_layers(context, wanted),
        longest=getattr(wanted.config, "max_position_embeddings", None),
        missing=not_installed(_LIBRARIES),
    )
    return refuse(context, facts, IMPOSSIBLE)


def _linear_layers(context: Context, wanted: Wanted) -> tuple[str, ...]:
    """Return the names of the model's linear layers, where LoRA is to find some by name."""
    if not wanted.plan.lora_modules:
        return ()
    from ..budget.outline import outline

    model: Any = outline(wanted.config, wanted.plan.weights_dtype)
    return tuple(name for name, part in model.named_modules() if is_linear(part))
