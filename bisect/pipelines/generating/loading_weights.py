"""Step 5: the weights. That all shards are read is not the end: from_pretrained then places what it
read and, where no generation config was given to it, looks that up.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ..model_steps import asking_the_hub
from . import quantized
from .device import own_device
from .generation_settings import given_to_loading
from .telling_shards import telling_shards
from .words import duration

if TYPE_CHECKING:
    from ...rank.context import Context
    from .loading_plan import Plan

_OFFLOAD = "cpu-offload"


def weights(context: Context) -> Any:
    """Return the model, with its weights where --device-map wants them."""
    args, planned = context.args, context.products["plan"]
    transformers = context.imports("transformers")
    if args.device_map != "none":
        _import_accelerate(context)
    options = {**planned.options, **_placing(context, planned), **quantized.options(context)}
    context.phase("files")
    with asking_the_hub("weights", args.model, context):
        options |= given_to_loading(context)
        words = f" with {planned.name}, device map {args.device_map}"
        context.about_to("transformers.AutoModelForCausalLM.from_pretrained", words)
        began = time.monotonic()
        with telling_shards(context, planned, transformers):
            model = transformers.AutoModelForCausalLM.from_pretrained(
                planned.name, local_files_only=args.local_files_only, **options
            )
    seconds = time.monotonic() - began
    context.say(f"from_pretrained returned {type(model).__name__} after {duration(seconds)}")
    _place(model, context)
    if not planned.on_hub:
        context.not_exercised.append("the hub (no model by name)")
    return model


def _import_accelerate(context: Context) -> None:
    try:
        context.imports("accelerate")
    except ModuleNotFoundError:
        raise UsageError(
            f"--device-map {context.args.device_map} needs accelerate, and it is not installed",
            "pip install accelerate, or --device-map none",
        ) from None


def _placing(context: Context, planned: Plan) -> dict[str, Any]:
    """Return the options of from_pretrained that say where weights go."""
    args = context.args
    if args.device_map != "auto":
        return {}
    placing: dict[str, Any] = {"device_map": "auto", "offload_folder": planned.folder}
    return placing | ({"max_memory": dict(args.max_memory)} if args.max_memory else {})


def _place(model: Any, context: Context) -> None:
    """Move a model that has not been placed while it was loaded."""
    device, args = own_device(context), context.args
    if device.type == "cuda":
        context.imports("torch").cuda.set_device(device)
    if args.device_map == _OFFLOAD:
        context.about_to("accelerate.cpu_offload", f", for {device}")
        context.imports("accelerate").cpu_offload(model, execution_device=device)
    elif args.device_map == "none" and args.quantization == "off" and device.type == "cuda":
        context.about_to(f"transformers.{type(model).__name__}.to", f" {device}")
        model.to(device)
