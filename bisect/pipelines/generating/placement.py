"""Where a model's parameters lie: on which device, offloaded to where. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .words import counted, size

META = "meta"
_SHOWN = 3


@dataclass(frozen=True)
class Parameter:
    name: str
    bytes: int
    device: str  # as torch names it: "cuda:0", "cpu", "meta"
    kept: str  # where its values are: its device, or "cpu" or "disk" if it is offloaded


@dataclass(frozen=True)
class Placement:
    """Parameters by where their values are, in bytes; those that come to a device only when it is
    their turn (`offloaded`), by where they wait.
    """

    parameters: int
    bytes: Mapping[str, int]
    offloaded: Mapping[str, int] = field(default_factory=dict)
    names: Sequence[str] = ()  # modules of what is offloaded
    offloaded_parameters: int = 0
    on_meta: int = 0

    @property
    def total(self) -> int:
        return sum(self.bytes.values())


def kept_at(name: str, device: str, device_map: Mapping[str, str]) -> str:
    """Return where the values of a parameter are: where its module was mapped to, if it is on meta,
    else its own device. `device_map` is by module, "" for all; what it does not name is on the CPU.
    """
    if device != META:
        return device
    inside = [module for module in device_map if _is_inside(name, module)]
    return device_map[max(inside, key=len)] if inside else "cpu"


def placed(parameters: Iterable[Parameter]) -> Placement:
    """Return where the parameters lie, all together."""
    everything = list(parameters)
    offloaded = [one for one in everything if one.device == META and one.kept != META]
    by_device: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    for one in everything:
        by_device[one.kept] += one.bytes
    for one in offloaded:
        waiting[one.kept] += one.bytes
    return Placement(
        parameters=len(everything),
        bytes=dict(by_device),
        offloaded=dict(waiting),
        names=tuple(dict.fromkeys(_module(one.name) for one in offloaded)),
        offloaded_parameters=len(offloaded),
        on_meta=sum(one.device == META for one in everything),
    )


def in_words(placement: Placement) -> list[str]:
    """Return a line on what lies where, and one on what is offloaded, if anything is."""
    where = ", ".join(f"{size(number)} on {device}" for device, number in placement.bytes.items())
    lines = [f"Parameters: {placement.parameters}, {size(placement.total)}: {where}"]
    if placement.offloaded:
        amount = sum(placement.offloaded.values())
        to = " and ".join(sorted(placement.offloaded))
        lines.append(
            f"Offloaded to {to}: {placement.offloaded_parameters} parameters, {size(amount)} "
            f"({shortened(placement.names)}). {_on_meta(placement.on_meta)}"
        )
    return lines


def shortened(names: Sequence[str]) -> str:
    """Return a few of the names, and how many more there are."""
    more = len(names) - _SHOWN
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown


def _on_meta(number: int) -> str:
    said = counted(number, "parameter")
    return f"{said} on the device meta: expected with offload, no error"


def _is_inside(name: str, module: str) -> bool:
    return module == "" or name == module or name.startswith(f"{module}.")


def _module(name: str) -> str:
    """Return the layer that a parameter belongs to: "model.layers.3" of its many."""
    parts = name.split(".")
    numbered = [at for at, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbered[0] + 1] if numbered else parts[:-1]) or name
