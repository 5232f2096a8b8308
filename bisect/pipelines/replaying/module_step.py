"""Step 6: the module, built alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ..generating import small_model
from ..generating.words import size
from ..model_steps import asking_the_hub

if TYPE_CHECKING:
    from ...rank.context import Context


def module(context: Context) -> Any:
    """Return the model of --model, else a small one. With --use module=... it is not called."""
    name = context.args.model
    torch, transformers = context.imports("torch"), context.imports("transformers")
    if not name:
        context.about_to("transformers.AutoModelForCausalLM.from_config", ", a small model")
        context.not_exercised.append("a module of yours (a small model)")
        return small_model.initialised(transformers, torch)
    with asking_the_hub("model", name, context):
        context.about_to("transformers.AutoModelForCausalLM.from_pretrained", f" with {name}")
        return transformers.AutoModelForCausalLM.from_pretrained(name)


def built(context: Context) -> Any:
    """Return the module that was built. Raises UsageError where a function of the user's own has
    returned something else.
    """
    made = context.products["module"]
    torch = context.imports("torch")
    if isinstance(made, torch.nn.Module):
        return made
    raise UsageError(
        f"--use module={context.args.use.get('module')} returned {type(made).__name__}: it is to "
        "be a torch.nn.Module",
        "The function is called with one argument: given.args, given.context, given.inputs.",
    )


def in_words(made: Any) -> str:
    """Return "Actor with 1,024 parameters, 4 kB"."""
    parameters = list(made.parameters())
    number = sum(p.numel() for p in parameters)
    held = sum(p.numel() * p.element_size() for p in parameters)
    return f"{type(made).__name__} with {number:,} parameters, {size(held)}"
