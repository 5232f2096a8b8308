"""Step 8: the module's weights: those it was built with, or those of a file."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ..generating.words import counted
from .module_step import built

if TYPE_CHECKING:
    from ...rank.context import Context

_MOST_NAMED = 3
_FOREIGN = re.compile(r"GLOBAL ([\w.]+)")  # in what torch.load says


def weights(context: Context) -> Any:
    """Return the module with its weights, after they were saved if that is asked for."""
    made, args = built(context), context.args
    if args.weights:
        _load(made, args.weights, context)
    else:
        context.say("Weights: those that the module was built with")
    if args.save_module:
        with context.rank0_only("saving the module") as mine:
            if mine:
                hub = context.imports("huggingface_hub")
                context.about_to("huggingface_hub.save_torch_model", f" to {args.save_module}")
                os.makedirs(args.save_module, exist_ok=True)
                hub.save_torch_model(made, args.save_module)
                context.say(f"Module saved: for the next time --weights {args.save_module}")
    return made


def _load(made: Any, path: str, context: Context) -> None:
    hub = context.imports("huggingface_hub")
    names = list(made.state_dict())
    context.about_to("huggingface_hub.load_torch_model", f" with {path}")
    try:
        # Not safe: torch's own files too, which weights_only keeps from executing anything.
        told = hub.load_torch_model(made, path, strict=False, safe=False, weights_only=True)
    except Exception as error:  # a file may break a reader in any way
        raise UsageError(
            f"--weights {path} cannot be loaded: {_why(error)}",
            "It takes a file of safetensors, one of tensors alone by torch.save(state_dict), or a "
            "folder with model.safetensors.",
        ) from None
    missing, unexpected = _missing(made, told.missing_keys), list(told.unexpected_keys)
    if names and len(missing) == len(names):
        raise UsageError(
            f"--weights {path} has none of the {len(names)} weights of {type(made).__name__}: it "
            f"has {_some(unexpected) or 'nothing'}, and the module {_some(names)}",
            "Save the module's own state_dict().",
        )
    context.say(f"Weights: {len(names) - len(missing)} of {len(names)} from {path}")
    if missing:
        context.say(f"Not in it, and as they were built: {_some(missing)}")
    if unexpected:
        context.say(f"In it, and of nothing in the module: {_some(unexpected)}")


def _why(error: Exception) -> str:
    text = str(error)
    foreign = _FOREIGN.search(text)
    if foreign:
        return f"it holds {foreign[1]}, and only tensors are taken"
    first, _, more = text.strip().partition("\n")
    if first.endswith(":"):  # torch's: which weight it is stands below
        first = f"{first} {more.strip().partition(chr(10))[0]}"
    return f"{type(error).__name__}: {first[:300]}"


def _missing(made: Any, named: list[str]) -> list[str]:
    """Return those of `named` that are not in the file under another name, as tied weights are."""
    held = made.state_dict(keep_vars=True)
    loaded = {id(value) for name, value in held.items() if name not in named}
    return [name for name in named if id(held.get(name)) not in loaded]


def _some(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    told = ", ".join(names[:_MOST_NAMED])
    return f"{told} and {counted(more, 'other')}" if more > 0 else told
