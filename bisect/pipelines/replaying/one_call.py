"""One forward, and one backward: how long they take and how much memory.

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ...errors import UsageError
from .difference import tensors
from .given_input import Given
from .ready_step import Ready


@dataclass
class Called:
    """What came of it; as far as it came, if it raised."""

    output: Any = None
    forward_s: float = 0.0
    backward_s: float | None = None
    memory_bytes: int = 0


def call(
    ready: Ready, given: Given, backward: bool, into: Called, begins: Callable[[str], None]
) -> None:
    """Call the module, and write into `into` what comes of it. `begins` is told "forward" and
    "backward". Raises what the module does.
    """
    on_gpu = ready.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(ready.device)
    if ready.module.training != given.training:  # it visits each module in it
        ready.module.train(given.training)
    begins("forward")
    with torch.set_grad_enabled(given.grad or backward), ready.attending():
        began = _now(on_gpu)
        try:
            into.output = ready.call(*given.args, **given.kwargs)
        finally:
            into.forward_s = _now(on_gpu) - began
            into.memory_bytes = _peak(ready.device)
    if backward:
        loss = loss_of(into.output)
        begins("backward")
        began = _now(on_gpu)
        try:
            ready.backward(loss)
        finally:
            into.backward_s = _now(on_gpu) - began
            into.memory_bytes = _peak(ready.device)
            ready.module.zero_grad(set_to_none=True)


def loss_of(output: Any) -> Any:
    """Return what a backward pass begins with: the loss, or the sum of the means of all that has a
    gradient. Raises UsageError where nothing has one.
    """
    found = dict(tensors(output))
    own = found.get("loss")
    if own is not None and own.requires_grad and own.numel() == 1:
        return own
    parts = [value.float().mean() for value in found.values() if value.requires_grad]
    if not parts:
        raise UsageError(
            "--backward: nothing that the module returned has a gradient",
            "Leave it out, or build a module with parameters that are trained, whose forward is "
            "not under torch.no_grad.",
        )
    return sum(parts[1:], parts[0])


def _now(on_gpu: bool) -> float:
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter()


def _peak(device: Any) -> int:
    """Return the most bytes in use: of the GPU since the forward began, else of the process ever
    (ru_maxrss is in units of 1024, getrusage(2)).
    """
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
