"""Combinations of settings that are known not to work: the shape of a table, and the refusal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..errors import UsageError

Facts = TypeVar("Facts")
_GO_ON = "To see it fail all the same: --skip preflight"


@dataclass(frozen=True)
class Impossible(Generic[Facts]):
    """A row. `seen` returns the settings with their values, None where they are not together."""

    id: str
    seen: Callable[[Facts], str | None]
    why: str
    way_out: str


def found_in(
    facts: Facts, table: Sequence[Impossible[Facts]]
) -> list[tuple[Impossible[Facts], str]]:
    """Return the combinations that the facts show, each with its settings in words."""
    return [(row, seen) for row in table if (seen := row.seen(facts)) is not None]


def refusal(found: Sequence[tuple[Impossible[Facts], str]]) -> UsageError:
    """Return the error that names the settings, why they cannot go together, and the ways out."""
    (row, settings), *others = found
    help = [f"For {row.why}."]
    help += [f"Nor can {settings}: {row.why}." for row, settings in others]
    help += list(dict.fromkeys(f"Instead: {row.way_out}" for row, _ in found))
    return UsageError(f"{settings} cannot go together", "\n".join([*help, _GO_ON]))
