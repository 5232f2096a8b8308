"""Where device_map="auto" will put a model's layers, told from its shapes alone.

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import accelerate

OFFLOADED = ("cpu", "disk")


@dataclass(frozen=True)
class Placed:
    """Modules by device ("0", "cpu", "disk"), and the bytes of weights on each."""

    modules: Mapping[str, str]
    sizes: Mapping[str, int]
    main: str  # the device that computes

    @property
    def offloaded(self) -> tuple[str, ...]:
        """Modules whose weights lie elsewhere than where they compute, and on meta until then."""
        away = [device for device in OFFLOADED if device != self.main]
        return tuple(name for name, device in self.modules.items() if device in away)


def placed(model: Any, max_memory: Mapping[int | str, str] | None) -> Placed:
    """Return where the layers of a model on meta will be put, as from_pretrained does it."""
    whole = getattr(model, "_no_split_modules", None) or []
    dtype = next(model.parameters()).dtype
    limits = accelerate.utils.get_balanced_memory(
        model,
        max_memory=dict(max_memory) if max_memory else None,
        no_split_module_classes=list(whole),
        dtype=dtype,
    )
    found = accelerate.infer_auto_device_map(
        model, max_memory=limits, no_split_module_classes=list(whole), dtype=dtype
    )
    modules = {name: str(device) for name, device in found.items()}
    devices = set(modules.values())
    main = next((d for d in sorted(devices) if d not in OFFLOADED), "cpu")
    return Placed(modules, _sizes(model, modules), main)


def _sizes(model: Any, modules: Mapping[str, str]) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for name, parameter in model.named_parameters():  # tied ones come once
        at = name
        while at and at not in modules:
            at = at.rpartition(".")[0]
        sizes[modules.get(at, "")] += parameter.numel() * parameter.element_size()
    return dict(sizes)
