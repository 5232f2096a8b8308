"""How much memory a rank may take: of its GPU, or its share of the machine's.

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import torch

from ...evidence.cgroups import limits
from .budget import Free


def free_memory(device: Any, local_ranks: int, divided: bool = False) -> Free:
    """Return what is free now for one of `local_ranks` ranks on this node; of all its GPUs together
    where the model is `divided` over them.

    On a GPU that starts CUDA, whose own memory is in use from then on and so no part of the answer.
    """
    if device.type == "cuda" and divided:
        each = free_of_gpus()
        return Free(f"{len(each)} GPUs", sum(f for f, _ in each), sum(t for _, t in each))
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        name = torch.cuda.get_device_name(device)
        return Free(f"GPU {device.index or 0} {name}", free, total)
    machine = psutil.virtual_memory()
    free, total = machine.available, machine.total
    group = limits(_own_groups())
    if group.memory is not None and group.memory_free is not None:
        free, total = min(free, group.memory_free), min(total, group.memory)
    share = f", 1 of {local_ranks} ranks" if local_ranks > 1 else ""
    return Free(f"the CPU{share}", free // local_ranks, total)


def free_of_gpus() -> list[tuple[int, int]]:
    """Return what is free and what there is of each GPU that this rank sees; starts CUDA on all."""
    return [torch.cuda.mem_get_info(index) for index in range(torch.cuda.device_count())]


def _own_groups() -> str:
    """Return the text that names the control groups of this process, "" where there is none."""
    try:
        return Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
