"""What forwards returned, on disk: what is compared with, and what is kept for later.

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import torch

from ...captures.listing import outputs_beside
from ...captures.reading import Capture, load
from ...captures.record import Record
from ...captures.tree import as_json, in_fields
from ...captures.writing import Kept, as_bytes
from ...whole_file import write_whole

MADE = "made"  # the name of an input that was made


def before(path: str, folder: str | None) -> Capture | None:
    """Return what the call of an input at `path` returned: when it was captured, or, with a
    `folder`, when outputs were kept there. None if nothing is there. Raises Unreadable.
    """
    beside = outputs_beside(path)
    place = os.path.join(folder, os.path.basename(beside)) if folder else beside
    return load(place) if os.path.exists(place) else None


def keep(output: Any, folder: str, name: str, module: Any, rank: int, ranks: int) -> None:
    """Write what the input `name` gave into `folder`. Raises OSError."""
    kept, cls = Kept(), type(module)
    record = Record(
        kind="outputs",
        name=cls.__name__,
        module=f"{cls.__module__}:{cls.__qualname__}",
        rank=rank,
        world_size=ranks,
        host=socket.gethostname(),
        pid=os.getpid(),
        at=time.time(),
        training=bool(module.training),
        grad=torch.is_grad_enabled(),
        tree=as_json(in_fields(output), kept.keep),
    )
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, os.path.basename(outputs_beside(name)))
    write_whole(path, as_bytes(record, kept))
