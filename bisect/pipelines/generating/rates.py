"""How fast weights come: from their files, and over the link to a device. Measured, each in less
than a second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

_SECONDS = 0.5  # a measurement takes no longer, but for one piece
_PIECE = 16 << 20  # bytes


def read_rate(paths: Sequence[str]) -> float | None:
    """Return bytes a second at which these files are read now, None if they hold next to nothing.

    Pieces from the middle of each in turn: what the page cache has comes as fast as it will come
    when the weights are read.
    """
    began, got, at = time.monotonic(), 0, 0
    sizes = {path: os.path.getsize(path) for path in paths}
    while time.monotonic() - began < _SECONDS and at < len(paths):
        path = paths[at]
        with open(path, "rb", buffering=0) as file:
            got += len(os.pread(file.fileno(), _PIECE, max(0, sizes[path] - _PIECE) // 2))
        at += 1
    seconds = time.monotonic() - began
    return got / seconds if got and seconds > 0 else None


def copy_rate(torch: Any, device: Any) -> float:
    """Return bytes a second from ordinary memory to a device: the way of what is offloaded."""

    def copied() -> None:
        block.to(device, copy=True)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    block = torch.ones(_PIECE, dtype=torch.uint8)
    copied()  # the first copy also starts CUDA
    began, copies = time.monotonic(), 0
    while time.monotonic() - began < _SECONDS / 2:
        copied()
        copies += 1
    return float(copies * _PIECE / (time.monotonic() - began))
