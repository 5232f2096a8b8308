"""How much what a forward returned differs from what another returned.

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ...captures.tree import in_fields
from .rows import Tokens


@dataclass(frozen=True)
class Difference:
    """Of the tensors that are in both. `largest` is inf where one has a number and the other none,
    None where there is nothing to compare.
    """

    largest: float | None = None
    where: str = ""  # the tensor with the largest
    apart: tuple[str, ...] = ()  # tensors of other shapes, or in one of them alone


def difference(
    now: Any, before: Any, here: Tokens | None = None, there: Tokens | None = None
) -> Difference:
    """Return the largest absolute difference of two outputs, tensor by tensor of the same name.
    `here` and `there`: where the tokens of their inputs were, if these were packed and unpacked.
    """
    ours, theirs = dict(tensors(now)), dict(tensors(before))
    both = [name for name in ours if name in theirs]
    apart = [name for name in (*ours, *theirs) if (name in ours) != (name in theirs)]
    largest, where = None, ""
    for name in both:
        one, other = ours[name], theirs[name]
        if here is not None and there is not None and one.shape != other.shape:
            one, other = here.of(one), there.of(other)
        if one.shape != other.shape:
            apart.append(name)
            continue
        found = _largest(one, other)
        if largest is None or found > largest:
            largest, where = found, name
    return Difference(largest, where, tuple(apart))


def tensors(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield name and tensor of all in a nested output: "logits", "hidden_states.0"."""
    value = in_fields(value)
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from tensors(one, f"{path}.{key}".strip("."))
    elif isinstance(value, list | tuple):
        for place, one in enumerate(value):
            yield from tensors(one, f"{path}.{place}".strip("."))


def _largest(one: Any, other: Any) -> float:
    if not one.numel():
        return 0.0
    first, second = (_with_digits(tensor) for tensor in (one, other))
    apart = (first - second).abs_()
    largest = float(apart.max())
    if math.isfinite(largest):
        return largest
    # Equal numbers of which no difference can be had: infinities of one sign, and NaN in both.
    apart[(first == second) | (first.isnan() & second.isnan())] = 0.0
    return float(apart.nan_to_num(nan=math.inf, posinf=math.inf).max())


def _with_digits(tensor: Any) -> Any:
    """Return a tensor on the CPU, in a dtype that rounds no difference away."""
    wide = tensor.dtype in (torch.float32, torch.float64)
    dtype = tensor.dtype if wide else torch.float64
    return tensor.detach().to("cpu", dtype)
