"""Memory of the GPUs that a rank sees, and of its process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .expected import Gpu
from .words import size

if TYPE_CHECKING:
    from ...rank.context import Context


def gpus(torch: Any) -> list[Gpu]:
    """Return the memory of each GPU that this process uses; [] before CUDA is in use."""
    if not torch.cuda.is_initialized():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        # Asked of a GPU that is not in use, mem_get_info would begin to use it.
        if index != torch.cuda.current_device() and not torch.cuda.memory_reserved(index):
            continue
        free, total = torch.cuda.mem_get_info(index)
        allocated = torch.cuda.memory_allocated(index)
        reserved = torch.cuda.memory_reserved(index)
        found.append(Gpu(f"GPU {index}", allocated, reserved, free, total))
    return found


def memory_lines(context: Context) -> list[str]:
    """Return a line for each GPU; without one a line that says so, with the process's memory."""
    found = gpus(context.imports("torch"))
    if found:
        return [gpu.in_words() for gpu in found]
    used = context.imports("psutil").Process().memory_info().rss
    return [f"No GPU in use: memory of the process {size(used)}"]
