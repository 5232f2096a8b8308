"""Which process is which: the ranks of the job and everything they started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..facts import Look, RankFacts


@dataclass(frozen=True)
class People:
    """The processes of a job by pid."""

    rank_of: Mapping[int, int] = field(default_factory=dict)  # descendants count as their rank
    names: Mapping[int, str] = field(default_factory=dict)

    def other_rank(self, pid: int | None, me: int) -> int | None:
        """Return the rank to which `pid` belongs, None if to none or to `me`."""
        rank = self.rank_of.get(pid) if pid is not None else None
        return None if rank == me else rank


def people(ranks: Sequence[RankFacts]) -> People:
    """Return who is who. A rank's own pid wins: one rank may have started another."""
    rank_of: dict[int, int] = {}
    names: dict[int, str] = {}
    for facts in ranks:
        for looks in facts.children:
            for look in looks:
                rank_of.setdefault(look.pid, facts.rank)
                names[look.pid] = look.name
    for facts in ranks:
        if facts.pid is not None:
            rank_of[facts.pid] = facts.rank
            names.setdefault(facts.pid, facts.looks[-1].name if facts.looks else "")
    return People(rank_of, names)


def descendants(facts: RankFacts, pid: int) -> tuple[tuple[Look, ...], ...]:
    """Return the looks at each descendant of process `pid` among the children of `facts`."""
    if pid == facts.pid:
        return tuple(looks for looks in facts.children if looks)
    parents = {looks[-1].pid: looks[-1].ppid for looks in facts.children if looks}

    def below(child: int) -> bool:
        passed: set[int] = set()
        while child in parents and child not in passed:
            passed.add(child)
            child = parents[child]
            if child == pid:
                return True
        return False

    return tuple(looks for looks in facts.children if looks and below(looks[-1].pid))
