"""What a row of the table of known calls says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..torch_functions import C10D

When = Callable[[tuple[Any, ...]], bool]


@dataclass(frozen=True)
class Row:
    """A call of a library that is a step of whoever makes it.

    `where` is module:attribute, as it is defined; without an attribute the import itself is the
    step. `checkpoint` and `phase` are those of the startup pipeline that it corresponds to. `when`
    is asked with the positional arguments of a call whether it is a step.
    """

    call: str  # as users write it
    where: str
    step: str
    title: str  # what is so when it is done
    component: str
    deadline: float | None  # seconds
    checkpoint: str | None = None
    phase: str | None = None
    once: bool = False  # only the first call is a step
    ends_start: bool = False  # once it is done the start-up is over
    when: When | None = None

    @property
    def module(self) -> str:
        """The module that defines it."""
        return self.where.partition(":")[0]

    @property
    def attribute(self) -> str:
        """What it is there, dotted; "" for the import itself."""
        return self.where.partition(":")[2]

    @property
    def of_torchs_groups(self) -> bool:
        """It is a function of torch.distributed, which are replaced in a way of their own."""
        return self.module == C10D
