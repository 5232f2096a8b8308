"""A job and its ranks, worked out as far as every verdict needs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..facts import Checkpoint, JobFacts, RankFacts
from .blame import Progress
from .peers import Situation, claimed_world, is_gone, situations


@dataclass(frozen=True)
class Case:
    """What there is to judge."""

    job: JobFacts
    ranks: tuple[RankFacts, ...]  # every rank of this node, those never seen included, in order
    absent: tuple[int, ...]  # ranks that a process group counts on and that nobody started
    remote: tuple[int, ...]  # ranks of other nodes, of which nothing is known
    found: dict[int, Situation]

    @cached_property
    def by_rank(self) -> dict[int, RankFacts]:
        return {facts.rank: facts for facts in self.ranks}

    def facts(self, rank: int) -> RankFacts | None:
        return self.by_rank.get(rank)

    def step(self, facts: RankFacts) -> Checkpoint | None:
        """Return the checkpoint that a rank is on its way to."""
        if facts.step is not None:
            return facts.step
        return next((c for c in self.job.table if c.number == reached(facts) + 1), None)

    def progress(self, facts: RankFacts) -> Progress:
        """Return how far a rank came."""
        step = self.step(facts)
        names = [phase.name for phase in step.phases] if step else []
        return reached(facts), names.index(facts.phase) + 1 if facts.phase in names else 0


def case_of(job: JobFacts, ranks: Sequence[RankFacts]) -> Case:
    """Return the case of a job that ended, or that is called hung."""
    known = {r.rank: r for r in ranks}
    for rank in job.local_ranks:
        known.setdefault(rank, _never_seen(rank))
    everyone = _without_end(tuple(known[rank] for rank in sorted(known)))
    claimed = claimed_world(everyone)
    alone = any(r.environment.get("GROUP_WORLD_SIZE") == "1" for r in everyone)
    first = 0 if alone else job.world_size
    absent = tuple(r for r in range(first, claimed) if r not in known)
    counted_on = frozenset(absent)
    remote = tuple(r for r in range(job.world_size) if r not in known and r not in counted_on)
    found = situations(everyone, absent, remote)
    lonely = [r for r, s in found.items() if s.wait and s.wait.kind == "absent_rank" and s.meets]
    if not absent and not remote and lonely and len(everyone) == 1:
        # A process group of one waits for nobody: at least one more rank was counted on.
        absent = (1 if everyone[0].rank == 0 else 0,)
        found = situations(everyone, absent, remote)
    return Case(job, everyone, absent, remote, found)


def _without_end(ranks: tuple[RankFacts, ...]) -> tuple[RankFacts, ...]:
    """Return `ranks`; where all have done what they had to do, those whose process does not end
    have not finished: a thread or a child is still waited for.
    """
    if not all(facts.finished for facts in ranks):
        return ranks
    return tuple(facts if is_gone(facts) else replace(facts, finished=False) for facts in ranks)


def _never_seen(rank: int) -> RankFacts:
    return RankFacts(rank, rank, reached=-1, alive=False, never_started=True)


def reached(facts: RankFacts) -> int:
    """Return the last checkpoint of a rank: none at all without a process, 0 without a hello."""
    if facts.never_started:
        return -1 if facts.pid is None else 0
    return facts.reached
