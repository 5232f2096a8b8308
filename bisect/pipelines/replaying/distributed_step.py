"""Step 7: a process group, as the module finds one in its job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..generating.device import own_device
from ..generating.words import counted
from .memory_step import check_room
from .module_step import built, in_words

if TYPE_CHECKING:
    from ...rank.context import Context


def distributed(context: Context) -> bool:
    """Make the process group, under a launcher and for ZeRO; return whether there is one."""
    made = built(context)
    context.say(f"Module {in_words(made)}")
    if "module" in context.args.use:
        check_room(context, made)
    torch, place = context.imports("torch"), context.place
    group = context.imports("torch.distributed")
    if not group.is_available():
        context.say("No process group: this torch was built without torch.distributed")
        return False
    if group.is_initialized():
        context.say("The process group is the one that was made while the module was built")
        return True
    if place.launcher is None and place.world_size == 1 and context.args.zero == "off":
        context.say("No process group: one process, without a launcher")
        return False
    device = own_device(context)
    backend = "nccl" if device.type == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
    context.about_to("torch.distributed.init_process_group", f" with {backend}")
    group.init_process_group(backend, **_alone(place.world_size, group))
    context.say(f"Process group: {backend}, {counted(group.get_world_size(), 'rank')}")
    return True


def _alone(ranks: int, group: Any) -> dict[str, Any]:
    """Return what a single process says in place of the launcher's variables."""
    return {"store": group.HashStore(), "rank": 0, "world_size": 1} if ranks == 1 else {}
