"""Where ranks are, for the live table. Pure."""

from __future__ import annotations

from ..report.live.now import RankNow, State
from ..report.words import of_ranks
from . import clocks
from .barriers import missing
from .clocks import Limits
from .members import Member, Members

STILL_SHOWN = 5.0  # seconds without movement that are worth a word


def rank_now(members: Members, member: Member, limits: Limits, clock: float) -> RankNow:
    """Return where a member is at `clock`, and until when it may be."""
    allowed = None if member.quiet else clocks.deadline(members, member, limits)
    began = clocks.began(members, member)
    moved = max(member.moved_at, member.stirred_at)
    state = _state(member)
    return RankNow(
        rank=member.rank,
        state=state,
        place=_place(members, member, state),
        number=member.step,
        since=member.waits_since if state == "waits" else began,
        until=began + allowed if allowed is not None else None,
        still_since=moved if clock > moved + STILL_SHOWN else None,
        moves=member.moving if member.seen_moving_at else "",
    )


def _state(member: Member) -> State:
    if member.left or member.left_at is not None:
        return "left"
    if member.finished:
        return "ends"
    if member.waits_for_us:
        return "waits"
    return "trains" if member.quiet else "works"


def _place(members: Members, member: Member, state: State) -> str:
    if state in ("left", "ends"):
        return "has ended" if state == "left" else "ends"
    if state == "trains":
        return "trains"
    if state == "waits":
        who = member.awaits or missing(members, member.held_at or 0)
        return f"waits for {of_ranks(who)}" if who else "waits"
    checkpoint = members.checkpoint_of(member)
    if checkpoint is None:
        return "ends"
    phase = members.phase_of(member)
    words = checkpoint.words.removeprefix("checkpoint ")
    inside = phase.name.replace("_", " ") if phase else ""
    return f"{words}: {inside}" if inside else words
