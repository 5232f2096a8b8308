"""Step 6: where the weights lie, and what has to come from elsewhere for each token."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import rates
from .device import own_device
from .expected import Link
from .gpus import gpus, memory_lines
from .placement import Parameter, Placement, in_words, kept_at, placed

if TYPE_CHECKING:
    from ...rank.context import Context

_SHOWN = 4  # modules of a device map


@dataclass(frozen=True)
class Where:
    """Where the parameters are, and what has to come from elsewhere for each token."""

    placement: Placement
    links: Sequence[Link]


def placement(context: Context) -> Where:
    """Say where the parameters are, and the memory of each GPU; return where they are."""
    model = context.products["weights"]
    given = getattr(model, "hf_device_map", None) or {}
    device_map = {module: _device_name(device) for module, device in given.items()}
    for module, device in list(device_map.items())[:_SHOWN]:
        context.say(f"Device map: {module or 'all of it'} on {device}")
    if len(device_map) > _SHOWN:
        context.say(f"Device map: {len(device_map) - _SHOWN} more modules, by device below")
    found = placed(
        Parameter(
            name=name,
            bytes=one.numel() * one.element_size(),
            device=str(one.device),
            kept=kept_at(name, str(one.device), device_map),
        )
        for name, one in model.named_parameters()
    )
    for line in [*in_words(found), *memory_lines(context)]:
        context.say(line)
    if not gpus(context.imports("torch")):
        context.not_exercised.append("a GPU")
    return Where(found, _links(found, context))


def _links(found: Placement, context: Context) -> list[Link]:
    """Return what must come from elsewhere for each token, at rates that are measured now."""
    torch, planned = context.imports("torch"), context.products["plan"]
    links = []
    device = own_device(context)
    for source, number in found.offloaded.items():
        if source == "disk":
            speed = rates.read_rate(_files(planned)) or planned.bytes_a_second
        else:
            speed = rates.copy_rate(torch, device)
        if speed:
            links.append(Link(source, number, speed))
    return links


def _files(planned: Any) -> list[str]:
    """Return the files that offloaded weights are read from: their own, else the checkpoint's."""
    own = [entry.path for entry in os.scandir(planned.folder) if entry.is_file()]
    if own or planned.checkpoint is None:
        return sorted(own)
    return [os.path.join(planned.source, name) for name in planned.checkpoint.files]


def _device_name(device: Any) -> str:
    """Return "cuda:0" for accelerate's 0."""
    return f"cuda:{device}" if isinstance(device, int) else str(device)
