"""What a series of looks says about each rank: does it move, wait for another, or hang. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..facts import RankFacts, Wait
from .members import Member

ON_ANOTHER = ("rank", "absent_rank", "collective", "store")


@dataclass(frozen=True)
class Settled:
    """Ranks by what they do: they move, burn CPU in the same places, wait for others, or hang."""

    moving: frozenset[int]
    busy: frozenset[int]
    waiting: frozenset[int]
    hung: frozenset[int]


def facts_of(member: Member, moved: str = "", busy: bool = False) -> RankFacts:
    """Return a member as a diagnosis takes it."""
    return RankFacts(
        rank=member.rank,
        local_rank=member.local_rank,
        pid=member.pid,
        host=member.host,
        reached=member.reached,
        held=member.held_at is not None,
        phase=member.phase,
        entered=member.entered,
        last_line=member.last_line,
        last_line_at=member.last_line_at,
        announced=member.announced,
        output=member.logged,
        alive=not member.left,
        left=member.left or member.left_at is not None,
        status=member.status,
        error=member.error,
        traceback=member.traceback,
        finished=member.finished,
        awaits=member.awaits,
        left_at=member.left_at,
        environment=dict(member.environment),
        looks=tuple(member.looks),
        children=tuple(tuple(looks) for looks in member.children.values()),
        moved=moved,
        busy=busy,
    )


def settle(ranks: Sequence[RankFacts], waits: Mapping[int, Wait | None]) -> Settled:
    """Sort the ranks. A rank that waits for another hangs only if no other rank moves."""
    held = {r.rank for r in ranks if r.held or r.awaits}
    alive = {r.rank for r in ranks if r.alive} - held
    moving = {r.rank for r in ranks if r.moved} & alive
    busy = {r.rank for r in ranks if r.busy and not r.moved} & alive
    quiet = alive - moving - busy
    on_another = {r for r in quiet if waits_for_another(waits.get(r), r)}
    # A rank that spins inside a collective (NCCL does) waits, whatever CPU it burns.
    spinning = {r for r in busy if waits_for_another(waits.get(r), r)}
    goes_on = moving | (busy - spinning)
    hung = quiet - on_another if goes_on else quiet | spinning
    waiting = (alive | held) - hung - goes_on
    return Settled(
        frozenset(moving), frozenset(busy - spinning), frozenset(waiting), frozenset(hung)
    )


def waits_for_another(wait: Wait | None, rank: int) -> bool:
    """Return whether a wait is for another rank of the job."""
    if wait is None:
        return False
    return wait.kind in ON_ANOTHER or (wait.rank is not None and wait.rank != rank)
