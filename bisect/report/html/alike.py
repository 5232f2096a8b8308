"""Nodes of the wait-for graph that wait for the same and are waited for by the same, together: a
thousand ranks that wait for one are one node.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import networkx

_ROUNDS = 12  # of refinement; chains of waits are shorter
_FEW = 3  # fewer that are alike stay apart
_RING = 12  # nodes of a ring that is drawn whole


@dataclass(frozen=True)
class Knot:
    """One node of the graph as evidence.json has it."""

    name: str
    kind: str
    says: str = ""
    rank: int | None = None


@dataclass(frozen=True)
class Wait:
    """One edge of it."""

    source: str
    target: str
    kind: str
    evidence: str


def groups(
    knots: Sequence[Knot], waits: Sequence[Wait], marks: Mapping[str, Hashable]
) -> list[list[Knot]]:
    """Return the nodes by what they are, what they wait for and who waits for them, in the order
    of the first of each group. `marks`: what tells a node from others besides (a culprit). Those
    that wait for one another in a small ring stay apart: the ring is what matters.
    """
    ring = _rings(waits)
    found: dict[int, list[Knot]] = {}
    colour = _colours(knots, waits, marks)
    for one in knots:
        found.setdefault(colour[one.name], []).append(one)
    return [part for group in found.values() for part in _parted(group, ring)]


def _parted(group: list[Knot], ring: Mapping[str, int]) -> Iterator[list[Knot]]:
    rings = [ring[one.name] for one in group if one.name in ring]
    if len(group) < _FEW or len(set(rings)) < len(rings):
        yield from ([one] for one in group)
    else:
        yield group


def _rings(waits: Sequence[Wait]) -> dict[str, int]:
    """Return a number for each node of a small ring: the same one for those of one ring."""
    drawn = networkx.DiGraph((wait.source, wait.target) for wait in waits)
    parts = [part for part in networkx.strongly_connected_components(drawn) if len(part) <= _RING]
    return {name: number for number, part in enumerate(parts) if len(part) > 1 for name in part}


def _colours(
    knots: Sequence[Knot], waits: Sequence[Wait], marks: Mapping[str, Hashable]
) -> dict[str, int]:
    """Return a number for each node: the same one for those that are alike (colour refinement)."""
    colour = _numbered({one.name: (one.kind, marks.get(one.name)) for one in knots})
    for _ in range(_ROUNDS):
        ahead: dict[str, set[Hashable]] = {one.name: set() for one in knots}
        behind: dict[str, set[Hashable]] = {one.name: set() for one in knots}
        for wait in waits:
            ahead[wait.source].add((wait.kind, colour[wait.target]))
            behind[wait.target].add((wait.kind, colour[wait.source]))
        finer = _numbered(
            {n: (colour[n], frozenset(ahead[n]), frozenset(behind[n])) for n in colour}
        )
        if len(set(finer.values())) == len(set(colour.values())):
            break
        colour = finer
    return colour


def _numbered(keys: Mapping[str, Hashable]) -> dict[str, int]:
    """Return a number for each name: the same one for equal keys."""
    numbers: dict[Hashable, int] = {}
    return {name: numbers.setdefault(key, len(numbers)) for name, key in keys.items()}
