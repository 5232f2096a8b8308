"""Combinations of settings that are known not to work: the shape of a table, and the refusal."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from ..errors import UsageError

if TYPE_CHECKING:
    from ..rank.context import Context

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


def refuse(context: Context, facts: Facts, table: Sequence[Impossible[Facts]]) -> Facts:
    """Return the facts, after a line that says so, if the table has nothing against them. Raises
    UsageError otherwise.
    """
    found = found_in(facts, table)
    if found:
        raise refusal(found)
    context.say("Preflight: nothing speaks against this combination")
    return facts


def not_installed(libraries: Iterable[str]) -> frozenset[str]:
    """Return those of `libraries` that are not there; imports none."""
    return frozenset(name for name in libraries if importlib.util.find_spec(name) is None)


def refusal(found: Sequence[tuple[Impossible[Facts], str]]) -> UsageError:
    """Return the error that names the settings, why they cannot go together, and the ways out."""
    (row, settings), *others = found
    help = [f"For {row.why}."]
    help += [f"Nor can {settings}: {row.why}." for row, settings in others]
    help += list(dict.fromkeys(f"Instead: {row.way_out}" for row, _ in found))
    return UsageError(f"{settings} cannot go together", "\n".join([*help, _GO_ON]))
