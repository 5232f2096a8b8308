"""How much memory a module alone will take, before it is moved or trained. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..budget.budget import Free
from ..generating.words import size

_FULL = 4  # bytes of a float32


@dataclass(frozen=True)
class Wanted:
    """What a replay does with a module."""

    backward: bool = False
    zero: str = "off"
    precision: str = "as-set"
    ranks: int = 1


@dataclass(frozen=True)
class Memory:
    """Bytes on one rank that are sure; activations come on top, and are known after the first
    forward.
    """

    weights: int
    gradients: int = 0
    copies: int = 0  # ZeRO's, in float32
    inputs: int = 0  # of the largest call

    @property
    def needed(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.copies + self.inputs


def memory_of(parameters: Iterable[tuple[int, int, bool]], wanted: Wanted, inputs: int) -> Memory:
    """Return what a module takes: of each parameter (number of values, bytes of each, whether it is
    trained).

    ZeRO divides the float32 copies from stage 1 on, gradients from 2 on, weights in 3 (DeepSpeed's
    documentation of ZeRO); whole in the module until it is divided.
    """
    set_to = {"bf16": 2, "fp32": _FULL}.get(wanted.precision)
    weights = gradients = trained = 0
    half = False
    for values, each, is_trained in parameters:
        each = set_to or each
        weights += values * each
        half = half or each < _FULL
        if is_trained:
            gradients += values * each
            trained += values
    stage = int(wanted.zero) if wanted.zero.isdigit() else 0
    copies = trained * _FULL if wanted.zero != "off" and half else 0
    return Memory(
        weights=weights // (wanted.ranks if stage == 3 else 1),
        gradients=(gradients // (wanted.ranks if stage >= 2 else 1)) if wanted.backward else 0,
        copies=copies // (wanted.ranks if stage >= 1 else 1),
        inputs=inputs,
    )


def memory_line(memory: Memory, free: Free) -> str:
    """Return it in words, against what is free."""
    parts = {
        "weights": memory.weights,
        "gradients": memory.gradients,
        "copies in float32": memory.copies,
        "the largest input": memory.inputs,
    }
    told = ", ".join(f"{name} {size(number)}" for name, number in parts.items() if number)
    left = free.free - memory.needed
    return (
        f"Memory: {told or 'nothing'}, and activations; {size(free.free)} of {size(free.total)} "
        f"are free, {free.where}: {size(left) + ' left' if left >= 0 else size(-left) + ' missing'}"
    )
