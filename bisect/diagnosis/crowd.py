"""All ranks side by side: who is where, worked out once for all of them.

What a rank waits for depends on where every other rank is; asked rank by rank, a thousand of them
would be a million comparisons.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..facts import RankFacts, Wait


@dataclass(frozen=True)
class Hop:
    """One rank before it is compared with the others."""

    facts: RankFacts
    wait: Wait | None
    # construction, collective, store; unsure: asleep in a futex, and no stack to tell why
    group: str = ""
    call: str = ""


@dataclass(frozen=True)
class Party:
    """Some ranks that others wait for; `order` also has those of which nothing is known."""

    hops: tuple[Hop, ...]
    order: tuple[int, ...]

    def __bool__(self) -> bool:
        return bool(self.hops)

    @cached_property
    def ranks(self) -> frozenset[int]:
        return frozenset(self.order)

    @cached_property
    def started(self) -> tuple[Hop, ...]:
        return tuple(h for h in self.hops if not h.facts.never_started or h.facts.pid is not None)

    @cached_property
    def furthest(self) -> Hop | None:
        """The one that is furthest behind. Of those that came equally far, one that waits for
        others itself is the last to name.
        """
        return min(
            self.started,
            key=lambda h: (h.facts.reached, bool(h.group or h.facts.awaits), h.facts.rank),
            default=None,
        )


_NOBODY = Party((), ())


def _party(hops: Iterable[Hop]) -> Party:
    chosen = tuple(hops)
    return Party(chosen, tuple(h.facts.rank for h in chosen))


class Crowd:
    """The ranks of a job by where they are. Those that finished are in none of the parties."""

    def __init__(self, hops: Sequence[Hop], absent: Iterable[int]) -> None:
        """`absent` ranks will never come."""
        self.hops = {hop.facts.rank: hop for hop in hops}
        self.absent = frozenset(absent)
        self._unfinished = [h for h in self.hops.values() if not h.facts.finished]
        self._behind: dict[int, Party] = {}
        self._with_absent: dict[int, frozenset[int]] = {}

    def others(self, hop: Hop) -> int:
        """Return how many other ranks have not finished."""
        return len(self._unfinished) - (not hop.facts.finished)

    @cached_property
    def elsewhere(self) -> Party:
        """Those that wait for no rank."""
        return _party(
            h for h in self._unfinished if not (h.group or h.facts.held or h.facts.awaits)
        )

    @cached_property
    def _ours(self) -> Party:
        """Those that wait because of us: in our barrier, or for a rank that they told us."""
        return _party(
            h for h in self._unfinished if not h.group and (h.facts.held or h.facts.awaits)
        )

    @cached_property
    def _at_a_store(self) -> Party:
        return _party(h for h in self._unfinished if h.group == "store")

    @cached_property
    def meeting(self) -> frozenset[int]:
        """Those that wait for their peers."""
        return frozenset(h.facts.rank for h in self._unfinished if h.group not in ("", "unsure"))

    def missing(self, hop: Hop) -> Party:
        """Return those for whom a rank that waits for its peers waits, nobody if all are there."""
        softer = self._at_a_store if hop.group != "store" else _NOBODY
        return next((party for party in (self.elsewhere, softer, self._ours) if party), _NOBODY)

    def behind(self, reached: int) -> Party:
        """Return those that are not yet in our barrier after checkpoint `reached`."""
        if reached not in self._behind:
            self._behind[reached] = _party(
                h
                for h in self._unfinished
                if is_gone(h.facts) or not h.facts.held or h.facts.reached < reached
            )
        return self._behind[reached]

    def named(self, ranks: Sequence[int]) -> Party:
        """Return these ranks, whether anything is known of them or not."""
        known = [self.hops[r] for r in ranks if r in self.hops]
        return Party(tuple(h for h in known if not h.facts.finished), tuple(ranks))

    def with_absent(self, party: Party) -> frozenset[int]:
        """Return the ranks of a party and the absent ones, the same object each time."""
        # By identity, which is safe for parties that live as long as the crowd, as these do.
        if id(party) not in self._with_absent:
            self._with_absent[id(party)] = party.ranks | self.absent
        return self._with_absent[id(party)]


def is_gone(facts: RankFacts) -> bool:
    """Return True for a rank that left, or has no process."""
    return facts.left or not facts.alive or (facts.pid is None and not facts.looks)
