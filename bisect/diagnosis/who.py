"""Which ranks are at fault, which are stuck, and which only wait."""

from __future__ import annotations

from collections.abc import Sequence

from ..facts import RankFacts, Ranks
from .blame import Progress, least_advanced
from .case import Case
from .collectives import blamed
from .crash import first_to_fail
from .graph import WaitGraph
from .peers import is_gone

# A healthy rank is found in these as well: on being interrupted they alone accuse nobody.
_ORDINARY = frozenset(["itself", "unknown", "kernel", "file", "futex", "device", "collective"])
# Exit statuses of who ended well, or by SIGINT, SIGTERM or SIGHUP.
_NO_FAULT = frozenset([0, None, -2, -15, -1, 130, 143, 129])
_QUIET = 5.0  # seconds without progress that make an interrupted job suspect


def sorted_out(case: Case, graph: WaitGraph) -> Ranks:
    """Return the ranks by what became of them."""
    culprit = _culprits(case, graph)
    living = [r for r in case.ranks if not is_gone(r)]
    waiting = {r.rank for r in living if _waits(case, graph, r)} - set(culprit)
    stuck: set[int] = set()
    if case.job.ended != "limit":
        # Where nobody looked for long, one look cannot tell slow from hung.
        enough = 1 if case.job.ended in ("late", "still", "busy") else 2
        stuck = {
            r.rank
            for r in living
            if len(r.looks) >= enough and not r.moved and not _unsure(case, r)
        }
        blamed = frozenset(culprit)
        stuck = (stuck - waiting) | {r.rank for r in living if r.rank in blamed}
    return Ranks(
        culprit=culprit,
        stuck=tuple(sorted(stuck)),
        waiting=tuple(sorted(waiting)),
        dead=tuple(r.rank for r in case.ranks if r.left and not r.finished),
        never_started=tuple(
            sorted({r.rank for r in case.ranks if r.never_started} | set(case.absent))
        ),
    )


def _waits(case: Case, graph: WaitGraph, facts: RankFacts) -> bool:
    found = case.found[facts.rank]
    others = facts.rank in graph.standing.waiting or bool(found.needs)
    return facts.held or bool(facts.awaits) or others or found.away


def _culprits(case: Case, graph: WaitGraph) -> tuple[int, ...]:
    """Return the ranks whose fault it is, none if that cannot be told."""
    job = case.job
    if job.ended == "crash":
        return first_to_fail(case.ranks)
    if job.ended == "left":
        early = [r for r in case.ranks if r.left and not r.finished]
        return tuple(r.rank for r in early if r.status == 0) or tuple(r.rank for r in early)
    candidates = [r for r in graph.standing.sinks if _may_be_blamed(case, graph, r)]
    if not candidates and job.ended != "interrupted":
        # Whoever the others wait for moves, or is on another node; what is left are those
        # that stand still by themselves.
        candidates = [r.rank for r in unfinished(case) if not _waits(case, graph, r)]
    return _at_odds(case, candidates) or least_advanced(candidates, progress(case))


def _at_odds(case: Case, candidates: Sequence[int]) -> tuple[int, ...]:
    """Return those of ranks that all wait in collectives whose calls do not go with the others'."""
    if len(candidates) < 2 or not all(r in case.found and case.found[r].meets for r in candidates):
        return ()
    return tuple(rank for rank in blamed(case.ranks) if rank in set(candidates))


def unfinished(case: Case) -> list[RankFacts]:
    """Return the ranks that had more to do."""
    return [r for r in case.ranks if not r.finished]


def progress(case: Case) -> dict[int, Progress]:
    """Return how far each rank came that had more to do, those that nobody started included."""
    found = {r.rank: case.progress(r) for r in unfinished(case)}
    return found | dict.fromkeys(case.absent, (-1, 0))


def _may_be_blamed(case: Case, graph: WaitGraph, rank: int) -> bool:
    facts = case.facts(rank)
    if facts is None:  # absent
        return True
    if (facts.held and rank not in graph.answering) or case.found[rank].away:
        return False
    if case.job.ended == "limit":
        return bool(facts.moved) or facts.busy
    if _ended_well(facts) and not graph.standing.waiting:
        return False
    return not facts.moved and not _unsure(case, facts)


def _ended_well(facts: RankFacts) -> bool:
    """Return True if a rank of a script of the user's own is gone, as far as it is known for good,
    or because it was told to go: that is no fault where nobody waits for it.
    """
    return facts.step is not None and is_gone(facts) and facts.status in _NO_FAULT


def _unsure(case: Case, facts: RankFacts) -> bool:
    """Return True if a rank of an interrupted job may have been at work."""
    job = case.job
    if job.ended != "interrupted":
        return False
    quiet = (job.still or 0.0) >= _QUIET or (job.past_deadline or 0.0) > 0.0
    wait = case.found[facts.rank].wait
    return not quiet and not is_gone(facts) and (wait is None or wait.kind in _ORDINARY)


def shown(case: Case, ranks: Ranks) -> RankFacts | None:
    """Return the living rank whose stack tells where it hangs.

    That is the culprit; for a rank that never came, or is on another node, one that waits.
    """
    culprit = first_culprit(case, ranks)
    if culprit is not None and not is_gone(culprit):
        return culprit
    if case.job.ended not in ("late", "still", "busy") or set(ranks.culprit) & set(ranks.dead):
        return None
    return next(
        (f for r in ranks.waiting if case.found[r].meets and (f := case.facts(r)) is not None),
        None,
    )


def first_culprit(case: Case, ranks: Ranks) -> RankFacts | None:
    """Return the first culprit of which anything is known."""
    return next((f for rank in ranks.culprit if (f := case.facts(rank))), None)
