"""The bytes of all tensors that are alive, counted operator by operator.

Works on real tensors and on fake ones, which have shapes and no data. What an operator allocates
and frees inside itself is not seen.

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts, while it is entered. `at_peak` is called whenever there is more than ever before."""

    def __init__(self, block: int = 1, at_peak: Callable[[], None] = lambda: None) -> None:
        """Round every allocation up to a multiple of `block` bytes."""
        super().__init__()
        self.now = 0
        self.peak = 0
        self._block = block
        self._at_peak = at_peak
        self._alive: dict[int, weakref.ref[Any]] = {}

    def add(self, tensor: torch.Tensor) -> None:
        """Count a tensor's memory until it is freed; that of a view is counted once."""
        storage = tensor.untyped_storage()
        key = id(storage)  # torch keeps one Python object for a storage, as long as that lives
        if key in self._alive:
            return
        size = self.rounded(storage.nbytes())

        def freed(_: object) -> None:
            del self._alive[key]
            self.now -= size

        self._alive[key] = weakref.ref(storage, freed)
        self.now += size
        if self.now > self.peak:
            self.peak = self.now
            self._at_peak()

    def forget_peak(self) -> None:
        """Look for the peak anew, from what there is now."""
        self.peak = 0

    def rounded(self, size: int) -> int:
        """Return what an allocation of `size` bytes takes."""
        return -(-size // self._block) * self._block

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Do what an operator does, and count what it returns."""
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self.add(tensor)
        return made
