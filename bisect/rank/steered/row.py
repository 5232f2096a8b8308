"""What a row of the table of steered calls says."""

from __future__ import annotations

from dataclasses import dataclass

from .call import Change


@dataclass(frozen=True)
class Row:
    """A call that a toggle is about. `where` is module:attribute, as it is defined; without an
    attribute the import itself is told, and nothing changed.
    """

    toggle: str
    where: str
    change: Change

    @property
    def module(self) -> str:
        """The module that defines it."""
        return self.where.partition(":")[0]

    @property
    def attribute(self) -> str:
        """What it is there, dotted; "" for the import itself."""
        return self.where.partition(":")[2]
