"""The cells of a scenario: what is run, one after the other or side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .scenario import Scenario

# Axes that are no toggles: keys of the file that a cell may have of its own.
PLACES = ("launcher", "nodes", "ranks")
DEFAULT_LAUNCHER = "torchrun"
ALONE = "python"  # the launcher that starts one process, whatever the number of ranks
DEFAULT_LIMIT = 3600.0  # seconds: a start that nobody waits for longer
MOST_CELLS = 1000
AS_IT_IS = "as you run it"


@dataclass(frozen=True)
class Cell:
    """One launch of a matrix, before anything is known of this machine."""

    number: int  # from 1
    name: str
    setting: Mapping[str, str]
    launcher: str | None  # None: it is in the command
    nodes: int
    ranks: int  # on each node
    words: tuple[str, ...]  # a pipeline's, or the user's whole command
    pipeline: str | None
    environment: Mapping[str, str]
    limit: float  # seconds


def size(scenario: Scenario) -> int:
    """Return how many cells there are before any is excluded."""
    if scenario.axes:
        return prod(len(values) for values in scenario.axes.values())
    return len(scenario.settings) or 1


def cells(scenario: Scenario) -> tuple[Cell, ...]:
    """Return all cells, numbered from 1."""
    return tuple(_multiplied(scenario) if scenario.axes else _listed(scenario))


def _listed(scenario: Scenario) -> Iterator[Cell]:
    whole = _whole(scenario)
    if not scenario.settings:
        yield whole
    for number, one in enumerate(scenario.settings, 1):
        yield replace(
            whole,
            number=number,
            name=one.name,
            setting=one.toggles,
            launcher=one.launcher or whole.launcher,
            nodes=one.nodes or whole.nodes,
            ranks=one.ranks or whole.ranks,
            words=(*whole.words, *one.arguments),
            environment={**whole.environment, **one.environment},
            limit=one.limit or whole.limit,
        )


def _multiplied(scenario: Scenario) -> Iterator[Cell]:
    whole, number = _whole(scenario), 0
    for values in product(*scenario.axes.values()):
        each = dict(zip(scenario.axes, values, strict=True))
        if any(_matches(each, one) for one in scenario.exclude):
            continue
        number += 1
        yield replace(
            whole,
            number=number,
            name=" ".join(f"{axis}={value}" for axis, value in each.items()),
            setting={name: value for name, value in each.items() if name not in PLACES},
            launcher=each.get("launcher", whole.launcher),
            nodes=int(each.get("nodes", whole.nodes)),
            ranks=int(each.get("ranks", whole.ranks)),
        )


def _matches(each: Mapping[str, str], excluded: Mapping[str, tuple[str, ...]]) -> bool:
    return all(each[axis] in values for axis, values in excluded.items())


def _whole(scenario: Scenario) -> Cell:
    """Return the cell that says no more than the file does."""
    walked = scenario.walked
    return Cell(
        number=1,
        name=AS_IT_IS,
        setting={},
        launcher=scenario.launcher or (DEFAULT_LAUNCHER if walked else None),
        nodes=scenario.nodes,
        ranks=scenario.ranks,
        words=scenario.arguments if walked else scenario.command or (),
        pipeline=walked,
        environment=scenario.environment,
        limit=scenario.limit or DEFAULT_LIMIT,
    )
