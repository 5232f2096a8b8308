"""A call's inputs or outputs, as the bytes of a safetensors file."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any, Literal

from .record import KEY, Record
from .tree import as_json, in_fields


class Kept:
    """The tensors of one file: copies on the CPU, as later calls may write into the originals."""

    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._held: list[Any] = []  # so that no id is given twice

    def keep(self, tensor: Any) -> str:
        """Copy a tensor; return its name, the same for the same tensor."""
        if id(tensor) not in self._names:
            name = str(len(self.tensors))
            copy = tensor.detach().to("cpu", copy=True)
            self.tensors[name] = copy.resolve_conj().resolve_neg().contiguous()
            self._names[id(tensor)] = name
            self._held.append(tensor)
        return self._names[id(tensor)]


def file_of(
    module: Any,
    value: Any,
    *,
    kind: Literal["inputs", "outputs"],
    name: str,
    rank: int,
    world_size: int,
    at: float,
    raised: str = "",
) -> bytes:
    """Return the file of what `module` is called with, or returns, in this process. Raises as
    `as_bytes` does.
    """
    kept, cls, torch = Kept(), type(module), sys.modules["torch"]
    record = Record(
        kind=kind,
        name=name,
        module=f"{cls.__module__}:{cls.__qualname__}",
        rank=rank,
        world_size=world_size,
        host=socket.gethostname(),
        pid=os.getpid(),
        at=at,
        training=bool(module.training),
        grad=bool(torch.is_grad_enabled()),
        tree=as_json(in_fields(value) if kind == "outputs" else value, kept.keep),
        raised=raised,
    )
    return as_bytes(record, kept)


def as_bytes(record: Record, kept: Kept) -> bytes:
    """Return the file. Raises ImportError without safetensors, ValueError, or what that raises."""
    from safetensors.torch import save

    torch: Any = sys.modules["torch"]
    with torch.no_grad():
        data: bytes = save(kept.tensors, {KEY: record.as_text()})
    return data
