"""Who else it may be: the likeliest ranks, the culprit first, with a score."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import groupby

from ..facts import Candidate, Outcome, Ranks
from .calls import component_of
from .case import Case
from .graph import WaitGraph
from .peers import is_gone
from .view import seen
from .who import progress

MOST = 5
# How likely a rank is the one, next to the culprit's 1: another sink that came further, one that
# stands still by itself, one that left early, one that waits for others.
_WEIGHTS = (1.0, 0.25, 0.15, 0.1, 0.05)
_SURE = 0.95  # of all scores together, where a culprit was looked at more than once
_UNSURE = 0.6


def candidates(
    case: Case, graph: WaitGraph, ranks: Ranks, outcome: Outcome, component: str | None
) -> tuple[Candidate, ...]:
    """Return at most five candidates, ranks that are in the same way suspect together.

    Scores are shares of how likely each is; what they lack to 1 is that it is none of these.
    None for a job that ended well, or that was interrupted while all were at work.
    """
    if outcome == "ok" or (outcome == "interrupted" and not ranks.culprit):
        return ()
    chosen = list(_groups(case, graph, ranks))[:MOST]
    whole = sum(weight for weight, _ in chosen)
    culprits = [facts for rank in ranks.culprit if (facts := case.facts(rank))]
    sure = ranks.culprit and all(len(f.looks) != 1 for f in culprits)
    trust = _SURE if sure else _UNSURE
    return tuple(
        Candidate(
            group,
            component if group == ranks.culprit else _component(case, group[0]),
            math.floor(100 * trust * weight / whole) / 100,
        )
        for weight, group in chosen
    )


def _groups(case: Case, graph: WaitGraph, ranks: Ranks) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Yield ranks by how suspect they are, then by how far they came."""
    far = progress(case)
    passed: set[int] = set()
    sinks = [
        r
        for r in graph.standing.sinks
        if (facts := case.facts(r)) is None or not (facts.moved or is_gone(facts))
    ]
    kinds = (ranks.culprit, sinks, ranks.stuck, ranks.dead, ranks.waiting)
    for kind, (weight, members) in enumerate(zip(_WEIGHTS, kinds, strict=True)):
        new = _in_order((r for r in members if r not in passed and r in far), far)
        passed |= set(members)
        if kind == 0 and ranks.culprit:
            yield weight, ranks.culprit
            continue
        for _, group in groupby(new, key=lambda rank: far[rank]):
            yield weight, tuple(group)


def _in_order(ranks: Iterable[int], far: dict[int, tuple[int, int]]) -> list[int]:
    return sorted(ranks, key=lambda rank: (far[rank], rank))


def _component(case: Case, rank: int) -> str | None:
    facts = case.facts(rank)
    if facts is None:
        return None
    return component_of(seen(facts.looks), facts, case.job, case.step(facts))
