"""Step 5: the memory that the module will take, before it is built if that can be known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ..generating.device import own_device
from ..generating.loading_plan import saved_dtype
from ..model_steps import asking_the_hub
from .memory import Memory, Wanted, memory_line, memory_of

if TYPE_CHECKING:
    from ...rank.context import Context

_WAYS_OUT = """--precision bf16, no --backward, ZeRO over more ranks (--zero 3)
To see it fail all the same: --skip memory_budget"""


def memory_budget(context: Context) -> Memory | None:
    """Return what is known to be needed; None of a module of the user's own, which is looked at
    once it is built. Raises UsageError if it is not there.
    """
    if "module" in context.args.use:
        context.say("The memory of a module of yours is looked at once it is built")
        return None
    transformers = context.imports("transformers")
    name = context.args.model
    if name:
        with asking_the_hub("config", name, context):
            context.about_to("transformers.AutoConfig.from_pretrained", f" with {name}")
            config = transformers.AutoConfig.from_pretrained(name)
    else:
        from ..generating import small_model

        config = small_model.config(transformers)
    context.about_to("transformers.AutoModelForCausalLM.from_config", " on the device meta")
    from ..budget.outline import outline

    return check_room(context, outline(config, saved_dtype(config)))


def check_room(context: Context, module: Any) -> Memory:
    """Return what `module` will take, after a line that says it. Raises UsageError if it is more
    than is free: starting it anyway might take the machine with it.
    """
    context.imports("psutil")
    from ..budget.free_memory import free_memory

    args, place = context.args, context.place
    parameters = [(p.numel(), p.element_size(), p.requires_grad) for p in module.parameters()]
    wanted = Wanted(args.backward, args.zero, args.precision, place.world_size)
    memory = memory_of(parameters, wanted, context.products["inputs"].largest)
    device = own_device(context)
    free = free_memory(device, place.local_world_size)
    here = {p.device.type for p in module.parameters()} == {device.type}
    line = memory_line(memory, free)
    # What lies there already is no longer free.
    missing = memory.needed - (memory.weights if here else 0) > free.free
    if missing and "memory_budget" not in args.skip:
        raise UsageError(line, _WAYS_OUT)
    context.say(line)
    return memory
