"""Two sequences side by side: what of one is in the other, in order, and what is not. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

# A place in the one sequence and one in the other; None where the other has nothing for it.
Pair = tuple[int | None, int | None]

BAND = 16  # places by which the two may be apart: collectives keep ranks together
GAP = -1  # for something that the other one does not have
_NEVER = -(10**9)


def align(
    a: Sequence[T], b: Sequence[T], score: Callable[[T, T], int], *, head_is_open: bool = False
) -> list[Pair]:
    """Return the pairs that give the highest score, in order; all of both sequences is in it.

    `score` is positive for two that belong together, 0 for two that cannot. What hangs over at the
    end costs nothing: one of them may just not be there yet. Nor does it at the head, if that
    `is_open`: the beginnings were not kept, and need not be the same.
    """
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    part = _PartToAlign(a[same:], b[same:], score, head_is_free=head_is_open and same == 0)
    return [(i, i) for i in range(same)] + [
        (None if i is None else i + same, None if j is None else j + same)
        for i, j in part.aligned()
    ]


@dataclass(frozen=True)
class _PartToAlign(Generic[T]):
    """A part to be aligned by dynamic programming, within BAND of the diagonal."""

    a: Sequence[T]
    b: Sequence[T]
    score: Callable[[T, T], int]
    head_is_free: bool

    def aligned(self) -> list[Pair]:
        a, b = self.a, self.b
        if not a or not b:
            return [*((i, None) for i in range(len(a))), *((None, j) for j in range(len(b)))]
        band = max(BAND, abs(len(a) - len(b)) + 1)
        table: dict[tuple[int, int], tuple[int, Pair]] = {}  # best score up to there, last step
        best, end = _NEVER, (0, 0)
        for i in range(len(a) + 1):
            for j in range(max(0, i - band), min(len(b), i + band) + 1):
                found = table[i, j] = self._best(table, i, j)
                # What hangs over at the end is free.
                if (i == len(a) or j == len(b)) and found[0] > best:
                    best, end = found[0], (i, j)
        return self._walked_back(table, end)

    def _best(
        self, table: dict[tuple[int, int], tuple[int, Pair]], i: int, j: int
    ) -> tuple[int, Pair]:
        if i == 0 and j == 0:
            return 0, (None, None)
        gap = 0 if self.head_is_free and (i == 0 or j == 0) else GAP
        found = _NEVER
        step: Pair = (None, None)
        if i and j and (points := self.score(self.a[i - 1], self.b[j - 1])) > 0:
            found, step = table[i - 1, j - 1][0] + points, (i - 1, j - 1)
        if i and (i - 1, j) in table and table[i - 1, j][0] + gap > found:
            found, step = table[i - 1, j][0] + gap, (i - 1, None)
        if j and (i, j - 1) in table and table[i, j - 1][0] + gap > found:
            found, step = table[i, j - 1][0] + gap, (None, j - 1)
        return found, step

    def _walked_back(
        self, table: dict[tuple[int, int], tuple[int, Pair]], end: tuple[int, int]
    ) -> list[Pair]:
        i, j = end
        pairs: list[Pair] = [
            *((k, None) for k in range(len(self.a) - 1, i - 1, -1)),
            *((None, k) for k in range(len(self.b) - 1, j - 1, -1)),
        ]
        while i or j:
            left, right = table[i, j][1]
            pairs.append((left, right))
            i, j = i - (left is not None), j - (right is not None)
        return pairs[::-1]
