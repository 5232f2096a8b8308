"""Starts of a job on sets of nodes: what came of them, and rounds, in which sets that have no node
in common are started side by side.

A part of the search is a generator: it yields the sets whose results it wants, and is resumed after
each round, until they are settled. `gather` runs several parts at the same time, so that a round
has what all of them want; `pack_round` takes of that what can be started side by side.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Sequence
from typing import Literal, TypeVar

from ..base.lazy_dataclass import dataclass

NodeSet = frozenset[str]
# "fail": it hung, crashed, or calculated something wrong. "unknown": it could not be started.
SetResult = Literal["pass", "fail", "unknown"]
Round = tuple[NodeSet, ...]  # no two have a node in common

MOST_UNKNOWN = 2  # starts that could not be made, until no more are tried


@dataclass(frozen=True)
class Wish:
    """A set that is to be started until it has failed `fails` times, or passed every time."""

    nodes: NodeSet
    fails: int = 1
    passes: int = 0  # where it never fails: at least as many as any set is started


@dataclass
class SetCounts:
    """What came of the starts on one set."""

    passes: int = 0
    fails: int = 0
    unknown: int = 0

    @property
    def starts(self) -> int:
        """Starts that passed or failed."""
        return self.passes + self.fails


class NodeStarts:
    """All starts so far. A set that failed once fails; one that passed `repeats` times passes."""

    def __init__(self, nodes: Sequence[str], repeats: int = 1) -> None:
        """`nodes` in their order; `repeats`: how often a set is started before it passes."""
        self.nodes = tuple(nodes)
        self.repeats = repeats
        self.counts: dict[NodeSet, SetCounts] = defaultdict(SetCounts)

    def add(self, nodes: NodeSet, result: SetResult) -> None:
        """Take in what came of a start."""
        counts = self.counts[nodes]
        counts.passes += result == "pass"
        counts.fails += result == "fail"
        counts.unknown += result == "unknown"

    def result(self, nodes: NodeSet) -> SetResult | None:
        """Return what is known of a set; None: not enough starts yet."""
        counts = self.counts[nodes] if nodes in self.counts else SetCounts()
        if counts.fails:
            return "fail"
        if counts.passes >= self.repeats:
            return "pass"
        return "unknown" if counts.unknown >= MOST_UNKNOWN else None

    def is_settled(self, wish: Wish) -> bool:
        """Return whether a set needs no further start."""
        counts = self.counts[wish.nodes] if wish.nodes in self.counts else SetCounts()
        if counts.unknown >= MOST_UNKNOWN or counts.fails >= wish.fails:
            return True
        if counts.fails:  # it failed, but not again in so many starts
            return counts.starts >= wish.fails * self.repeats + wish.fails
        return counts.passes >= max(self.repeats, wish.passes)

    def both_ways(self) -> tuple[NodeSet, ...]:
        """Return the sets that failed and passed."""
        return tuple(key for key, one in self.counts.items() if one.fails and one.passes)

    def failing(self, least: int = 1) -> tuple[NodeSet, ...]:
        """Return the sets of at least so many nodes that failed, the smallest first."""
        found = [key for key, one in self.counts.items() if one.fails and len(key) >= least]
        return tuple(sorted(found, key=len))

    def passing(self, least: int = 1) -> tuple[NodeSet, ...]:
        """Return the sets of at least so many nodes that pass, the smallest first."""
        found = [k for k in self.counts if len(k) >= least and self.result(k) == "pass"]
        return tuple(sorted(found, key=len))

    def good(self) -> NodeSet:
        """Return the nodes that are in a set of two or more that passes."""
        return frozenset().union(*self.passing(2))

    def unseen(self) -> NodeSet:
        """Return the nodes on which nothing can be started: alone, or, of one that was lost later,
        in two sets with others, and in none it could.
        """
        alone, others, lost = set[str](), set[str](), Counter[str]()
        for key in self.counts:
            result = self.result(key)
            if len(key) == 1 and result == "unknown":
                alone |= key
            elif len(key) > 1 and result == "unknown":
                lost.update(key)
            elif len(key) > 1 and result is not None:
                others |= key
        return frozenset(alone | {node for node, count in lost.items() if count > 1} - others)

    def ordered(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Return these nodes in the order in which all were given."""
        some = frozenset(nodes)
        return tuple(node for node in self.nodes if node in some)

    def in_order(self, sets: Iterable[NodeSet]) -> list[NodeSet]:
        """Return these sets, the smallest first, then in the order of their nodes."""
        place = {node: number for number, node in enumerate(self.nodes)}
        return sorted(sets, key=lambda one: (len(one), sorted(place[node] for node in one)))


T = TypeVar("T")
# Yields what it wants, is resumed after a round in which some of that may have been started.
Part = Generator[Sequence[Wish], None, T]


def settle(starts: NodeStarts, wishes: Sequence[Wish]) -> Part[None]:
    """Have these sets started until all of them are settled."""
    while left := [wish for wish in wishes if not starts.is_settled(wish)]:
        yield left


def gather(parts: Sequence[Part[T]]) -> Part[list[T]]:
    """Run parts of a search at the same time; return what each returns, in their order."""
    done: dict[int, T] = {}
    wanted: dict[int, Sequence[Wish]] = {}
    under_way = dict(enumerate(parts))
    while True:
        for number, part in list(under_way.items()):
            try:
                wanted[number] = part.send(None)
            except StopIteration as end:
                done[number] = end.value
                del under_way[number]
        if not under_way:
            return [done[number] for number in range(len(parts))]
        yield [wish for number in under_way for wish in wanted[number]]


def pack_round(wishes: Sequence[Wish]) -> Round:
    """Return those of the sets, the first first, that have no node in common."""
    taken: set[str] = set()
    chosen: list[NodeSet] = []
    for wish in wishes:
        if taken.isdisjoint(wish.nodes):
            chosen.append(wish.nodes)
            taken |= wish.nodes
    return tuple(chosen)
