"""Step 4: refuse what is known not to work, before anything is loaded."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ..budget.quantized import is_linear
from .divided import divided
from .impossible import Impossible, Settings, found_in

if TYPE_CHECKING:
    from ...rank.context import Context
    from .configuration import Wanted

_LIBRARIES = ("bitsandbytes",)
_GO_ON = "To see it fail all the same: --skip preflight"


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
        missing=frozenset(n for n in _LIBRARIES if importlib.util.find_spec(n) is None),
    )
    found = found_in(facts)
    if found:
        raise refusal(found)
    context.say("Preflight: nothing speaks against this combination")
    return facts


def refusal(found: list[tuple[Impossible, str]]) -> UsageError:
    """Return the error that names the settings, why they cannot go together, and the ways out."""
    (row, settings), *others = found
    help = [f"For {row.why}."]
    help += [f"Nor can {settings}: {row.why}." for row, settings in others]
    help += list(dict.fromkeys(f"Instead: {row.way_out}" for row, _ in found))
    return UsageError(f"{settings} cannot go together", "\n".join([*help, _GO_ON]))


def _linear_layers(context: Context, wanted: Wanted) -> tuple[str, ...]:
    """Return the names of the model's linear layers, where LoRA is to find some by name."""
    if not wanted.plan.lora_modules:
        return ()
    from ..budget.outline import outline

    model: Any = outline(wanted.config, wanted.plan.weights_dtype)
    return tuple(name for name, part in model.named_modules() if is_linear(part))
