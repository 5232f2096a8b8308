"""Which rank's collectives do not go together with the others'. Pure; the way in for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..facts import Collective, RankFacts
from . import by_number
from .collective_logs import Group, Source, Stream, groups_of
from .mismatch import Mismatch, told
from .parting import first_mismatch


def mismatch(ranks: Sequence[RankFacts]) -> Mismatch | None:
    """Return the first place where ranks did not make the same collective calls, None if they did,
    or if there are no logs of at least two of them.

    Our own log is asked first, which has the call sites; then, for what C++ calls, torch's
    recorder; then whether groups wait for one another; and last who is merely behind.
    """
    own = [found for group in groups_of(ranks, "ring") if (found := first_mismatch(group))]
    sure = [found for found in own if found.is_sure]
    if sure:
        return min(sure, key=lambda found: found.operation.at)
    recorded = _recorded(ranks)
    if recorded is not None and recorded.is_sure:
        return recorded
    across = _across_groups(ranks)
    if across is not None:
        return across
    return min(own, key=lambda found: found.operation.at, default=recorded)


def blamed(ranks: Sequence[RankFacts]) -> tuple[int, ...]:
    """Return the ranks that are to blame where all wait in collectives, () if that cannot be told.

    Ranks that are merely behind are not: what they wait for tells more.
    """
    found = mismatch(ranks)
    return found.ranks if found is not None and found.is_sure else ()


def _recorded(ranks: Sequence[RankFacts]) -> Mismatch | None:
    """Return what torch's own recorders show, with the call sites that our log has for it."""
    sources: tuple[Source, ...] = ("torch", "flight recorder")
    for source in sources:
        found = [
            one for group in groups_of(ranks, source) if (one := by_number.first_mismatch(group))
        ]
        if found:
            first = min(found, key=lambda one: (not one.is_sure, one.operation.at))
            return _with_sites(first, ranks)
    return None


def _with_sites(found: Mismatch, ranks: Sequence[RankFacts]) -> Mismatch:
    """Fill in where each rank called what C++ made: the call of our own log that it came in."""
    sites = {
        rank: site or _site_at(found.operation.at, rank, ranks)
        for rank, site in found.sites.items()
    }
    operation, paired = found.operation, found.paired
    if not operation.site:
        place = next((sites[r] for r in found.ranks if sites.get(r)), "")
        if found.kind in ("missing", "skipped"):
            place = next((sites[r] for r in found.others if sites.get(r)), "")
        operation = replace(operation, site=place)
    if paired is not None and not paired.site:
        place = next((sites[r] for r in found.others if sites.get(r)), "")
        paired = replace(paired, site=place)
    return told(replace(found, sites=sites, operation=operation, paired=paired))


def _site_at(at: float, rank: int, ranks: Sequence[RankFacts]) -> str:
    """Return the site of the last call that our own log has before `at`, "" if none."""
    logs = [log for r in ranks if r.rank == rank for log in r.collectives if log.source == "ring"]
    before = [one for log in logs for one in log.operations if one.at <= at and one.site]
    return max(before, key=lambda one: one.at).site if before else ""


def _across_groups(ranks: Sequence[RankFacts]) -> Mismatch | None:
    """Return the mismatch of ranks that wait in different groups: each in one that the other has
    not come to yet, because they call them in another order.
    """
    groups = groups_of(ranks, "ring")
    waiting = {
        stream.rank: group.name
        for group in groups
        for stream in group.streams
        if stream.operations and stream.operations[-1].done is False
    }
    involved = set(waiting)
    shared = [group for group in groups if involved <= set(group.members)]
    if len(involved) < 2 or len({waiting[rank] for rank in involved}) < 2 or len(shared) < 2:
        return None
    names = {group.name for group in shared}
    if not set(waiting.values()) <= names:
        return None
    together = Group(
        " and ".join(sorted(names)),
        "ring",
        tuple(sorted(involved)),
        tuple(_merged(rank, shared) for rank in sorted(involved)),
    )
    found = first_mismatch(together)
    return found if found is not None and found.is_sure else None


def _merged(rank: int, groups: Sequence[Group]) -> Stream:
    """Return a rank's operations of several groups in the order in which it made them."""
    own = [s for group in groups for s in group.streams if s.rank == rank]
    operations: list[Collective] = sorted((o for s in own for o in s.operations), key=_when)
    since = max((s.since for s in own), default=0)
    kept = max((s.operations[0].at for s in own if s.since and s.operations), default=0.0)
    renumbered = [
        replace(one, number=number)
        for number, one in enumerate((o for o in operations if o.at >= kept), since + 1)
    ]
    return Stream(rank, tuple(renumbered), since)


def _when(one: Collective) -> float:
    return one.at
