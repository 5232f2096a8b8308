"""An input as the module gets it: read, packed or unpacked, on its device.

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...captures.places import INPUTS
from ...captures.reading import Unreadable, load
from ...captures.tree import NotKept
from .rows import Tokens, packed, tokens_in, unpacked


@dataclass(frozen=True)
class Given:
    """What a forward is called with."""

    name: str  # of the file, without what all of them end in
    rank: int  # on which it was captured
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    training: bool  # the module's mode
    grad: bool  # gradients are kept
    left_out: tuple[str, ...] = ()  # arguments that could not be kept, "name (class)"
    here: Tokens | None = None  # where its tokens are, if it was packed or unpacked
    there: Tokens | None = None  # and where they were

    @property
    def tokens(self) -> int:
        """How many there are, without padding; 0 where nothing in it tells."""
        values = (*self.kwargs.values(), *self.args)
        mask = self.kwargs.get("attention_mask")
        if isinstance(mask, torch.Tensor) and mask.dim() == 2 and not mask.is_floating_point():
            return int(mask.sum())
        for value in values:
            if isinstance(value, torch.Tensor) and value.dim() == 2 and _is_whole(value):
                return int(value.numel())
        for value in values:
            if isinstance(value, torch.Tensor) and value.dim() == 3:
                return int(value.shape[0] * value.shape[1])
        return 0


def read(path: str) -> Given:
    """Return what a capture holds. Raises Unreadable, also where something was not kept that cannot
    be left out: a positional argument, a part of any.
    """
    found = load(path)
    args, kwargs = found.value
    left_out = {name: value for name, value in kwargs.items() if isinstance(value, NotKept)}
    inside = {name: value for name, value in kwargs.items() if name not in left_out}
    for name, value in (*enumerate(args), *inside.items()):
        for lost in _not_kept(value):
            raise Unreadable(path, f"its argument {name} has a {lost.what}, which was not kept")
    return Given(
        name=os.path.basename(path).removesuffix(INPUTS),
        rank=found.record.rank,
        args=args,
        kwargs=inside,
        training=found.record.training,
        grad=found.record.grad,
        left_out=tuple(f"{name} ({value.what})" for name, value in left_out.items()),
    )


def _not_kept(value: Any) -> Iterator[NotKept]:
    if isinstance(value, NotKept):
        yield value
    elif isinstance(value, list | tuple):
        yield from (lost for one in value for lost in _not_kept(one))
    elif isinstance(value, Mapping):
        yield from (lost for one in value.values() for lost in _not_kept(one))


def in_form(given: Given, packing: str, module: Any) -> Given:
    """Return the input with its samples packed ("on") or unpacked ("off") for `module`, as far as
    it is of a form that can be.
    """
    change = {"on": packed, "off": unpacked}.get(packing)
    made = change(given.kwargs) if change and not given.args else None
    if made is None:
        return given
    if "use_cache" in inspect.signature(module.forward).parameters:
        made["use_cache"] = False  # with a cache transformers looks for no samples in a row
    return replace(given, kwargs=made, here=tokens_in(made), there=tokens_in(given.kwargs))


def on_device(given: Given, device: Any, dtype: Any) -> Given:
    """Return the input with its tensors on `device`; those of no whole numbers in `dtype`, unless
    that is None.
    """

    def moved(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(device, dtype if value.is_floating_point() else None)
        if isinstance(value, list | tuple):
            return type(value)(moved(one) for one in value)
        if isinstance(value, Mapping):
            return {name: moved(one) for name, one in value.items()}
        return value

    return replace(given, args=moved(given.args), kwargs=moved(given.kwargs))


def _is_whole(value: Any) -> bool:
    return not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)
