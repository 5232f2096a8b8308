"""What a rank waits for, as one edge; the way in for the monitor, which asks while it watches."""

from __future__ import annotations

from collections.abc import Sequence

from ..facts import RankFacts, Wait
from .peers import situations


def wait_of(facts: RankFacts, all_ranks: Sequence[RankFacts]) -> Wait | None:
    """Return what `facts` waits for, given the others; None for a rank that is gone.

    A kind of rank, absent_rank, collective or store, or a `rank` that is set, means that it is
    not stuck by itself.
    """
    return situations(_with(facts, all_ranks))[facts.rank].wait


def waits_of(all_ranks: Sequence[RankFacts]) -> dict[int, Wait | None]:
    """Return `wait_of` of every rank, at the price of one."""
    return {rank: found.wait for rank, found in situations(all_ranks).items()}


def who_waits(all_ranks: Sequence[RankFacts]) -> tuple[int, ...]:
    """Return the living ranks that wait for other ranks, in order."""
    found = situations(all_ranks)
    return tuple(sorted(rank for rank, s in found.items() if s.needs or s.away))


def _with(facts: RankFacts, all_ranks: Sequence[RankFacts]) -> list[RankFacts]:
    others = [one for one in all_ranks if one.rank != facts.rank]
    return [*others, facts]
