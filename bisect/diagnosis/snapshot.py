"""All ranks of a job as one series of looks shows them. The code that decides which ranks hang and
the code that makes the verdict use the same object, so the work is done once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from ..base.identity import RankId
from ..base.rank_facts import RankFacts
from ..base.verdict_facts import Wait

if TYPE_CHECKING:
    from .rank_waits import RankWait
    from .single_ranks import SingleRanks


class Snapshot:
    """The ranks, and on request what each of them waits for."""

    def __init__(self, ranks: Iterable[RankFacts] = (), before: SingleRanks | None = None) -> None:
        """`before` is what an earlier snapshot found: it is kept where no look is new."""
        self.ranks = tuple(ranks)
        self._before = before

    def update(self, ranks: Sequence[RankFacts]) -> Snapshot:
        """Return the snapshot of the ranks as they are now; what their looks show is not worked
        out again where these are the same.
        """
        return Snapshot(ranks, self.__dict__.get("single_ranks", self._before))

    @cached_property
    def single_ranks(self) -> SingleRanks:
        """Each rank by itself, as its looks show it."""
        # Not at the top: nearly all jobs end well, and their ranks would wait for these imports.
        from .single_ranks import explain_single_ranks

        kept = self._before.renew(self.ranks) if self._before is not None else None
        self._before = None
        return kept or explain_single_ranks(self.ranks)

    def compare_ranks(
        self,
        absent: Iterable[RankId] = (),
        remote: Iterable[RankId] = (),
        unstarted: str = "",
        masters: Collection[str] = (),
    ) -> dict[RankId, RankWait]:
        """Return what each rank waits for, given the others (`find_rank_waits`)."""
        from .rank_waits import find_rank_waits

        return find_rank_waits(self.single_ranks, absent, remote, unstarted, masters)

    @cached_property
    def waits(self) -> Mapping[RankId, Wait | None]:
        """What each rank waits for where no rank is but these; None for one that is gone.

        A kind of rank, absent_rank, collective or store, or a `rank` that is set, means that it is
        not stuck by itself.
        """
        return {rank: found.wait for rank, found in self.compare_ranks().items()}
