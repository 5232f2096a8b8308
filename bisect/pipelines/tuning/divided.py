"""Where --device-map auto will put a model's layers, and how much of the weights each gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...rank.context import Context
    from ..budget.placement import Placed
    from .configuration import Wanted


def divided(context: Context, wanted: Wanted) -> Placed | None:
    """Return where the model's layers will be put, None without a device map."""
    if wanted.device_map == "none":
        return None
    context.imports("accelerate")
    from ..budget.outline import outline
    from ..budget.placement import placed

    context.about_to("accelerate.infer_auto_device_map")
    return placed(outline(wanted.config, wanted.plan.weights_dtype), wanted.max_memory)
