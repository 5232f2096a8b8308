"""Types and shapes of tensors as texts: "float32[4, 8]"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MOST_SHAPES = 2048  # where every batch has another length there is no end to them


class TensorShapes:
    """Shapes by number; numbers are given by `number_of(text)`."""

    def __init__(self, number_of: Callable[[str], int]) -> None:
        """Torch itself is told later, once it is there."""
        self.torch: Any = None
        self._number_of = number_of
        self._plain: frozenset[type] = frozenset()
        self._known: dict[Any, int] = {}

    def of(self, tensor: Any) -> int:
        """Return the number of a tensor's type and shape, 0 for anything that is no plain tensor:
        others may do whatever they like when they are asked.
        """
        if type(tensor) not in self._plain:
            return self._new_type(tensor)
        found = self._known.get((tensor.dtype, tensor.shape))
        return self._new_shape(tensor) if found is None else found

    def _new_type(self, tensor: Any) -> int:
        if self._plain or self.torch is None:
            return 0
        self._plain = frozenset([self.torch.Tensor, self.torch.nn.Parameter])
        return self.of(tensor)

    def _new_shape(self, tensor: Any) -> int:
        if len(self._known) >= _MOST_SHAPES:
            return 0
        text = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
        self._known[tensor.dtype, tensor.shape] = number = self._number_of(text)
        return number
