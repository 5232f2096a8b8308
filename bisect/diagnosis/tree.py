"""Stacks of many ranks as one tree: what they share once, and where they part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

Stack = tuple[str, ...]  # a line a frame, outermost first


@dataclass(frozen=True)
class Branch:
    """A run of frames that several stacks share. Without lines: they go no deeper than the branch
    above, others do.
    """

    depth: int  # of how many branches it is part
    ranks: tuple[int, ...]  # one for each stack, in order
    lines: Stack
    forks: bool  # branches of one more depth follow


def merge(stacks: Iterable[tuple[int, Stack]]) -> tuple[Branch, ...]:
    """Return the tree of `stacks`, each with its rank; a rank may have several.

    Each branch comes before those that grow from it, and beside one another they stand by their
    first rank. The order in which stacks are given makes no difference.
    """
    # Equal stacks are told by their hash, all at once: there are few different ones.
    alike: dict[Stack, list[int]] = {}
    for rank, stack in stacks:
        alike.setdefault(stack, []).append(rank)
    return tuple(_grown({stack: sorted(ranks) for stack, ranks in alike.items()}))


def _grown(ranks: Mapping[Stack, list[int]]) -> Iterator[Branch]:
    # A stack of our own: recursions of different depth nest deeper than Python lets us follow.
    todo = [(0, 0, group) for group in reversed(_parted(list(ranks), ranks, 0))]
    while todo:
        depth, begin, group = todo.pop()
        end = _shared(group)
        below = _parted(group, ranks, end) if len(group) > 1 else []
        here = sorted(chain.from_iterable(ranks[stack] for stack in group))
        yield Branch(depth, tuple(here), group[0][begin:end], bool(below))
        todo.extend((depth + 1, end, branch) for branch in reversed(below))


def _shared(group: Sequence[Stack]) -> int:
    """Return how many of their first lines all stacks of `group` share."""
    # What the smallest and the largest share, all between them share, too.
    first, last = min(group), max(group)
    most = min(len(first), len(last))
    return next((i for i in range(most) if first[i] != last[i]), most)


def _parted(group: Iterable[Stack], ranks: Mapping[Stack, list[int]], at: int) -> list[list[Stack]]:
    """Return `group` by the line at `at`; those that end before it are by themselves."""
    parts: dict[Stack, list[Stack]] = {}
    for stack in group:
        parts.setdefault(stack[at : at + 1], []).append(stack)
    return sorted(parts.values(), key=lambda part: (min(ranks[s][0] for s in part), min(part)))
