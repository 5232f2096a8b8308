"""Where ranks are, for the live table. A file of its own since it is loaded with the first table,
and not while ranks wait for the monitor.
"""

from __future__ import annotations

from ..base.rank_state import NodeRanks, RankState, find_missing_ranks
from ..base.words import format_ranks
from ..report.live_table import RankNow, State
from . import clocks
from .clocks import TimeLimits

STILL_SHOWN = 5.0  # seconds without movement that are worth a word


def locate_rank(members: NodeRanks, member: RankState, limits: TimeLimits, clock: float) -> RankNow:
    """Return where a member is at `clock`, and until when it may be."""
    allowed = None if member.quiet else clocks.find_deadline(members, member, limits)
    began = clocks.find_clock_start(members, member)
    moved = max(member.moved_at, member.stirred_at)
    state = _find_state(member)
    return RankNow(
        rank=member.rank,
        state=state,
        place=_format_place(members, member, state),
        number=member.step,
        since=member.waits_since if state == "waits" else began,
        until=began + allowed if allowed is not None else None,
        still_since=moved if clock > moved + STILL_SHOWN else None,
        moves=member.moving if member.seen_moving_at else "",
    )


def _find_state(member: RankState) -> State:
    if member.has_left:
        return "left"
    if member.finished:
        return "ends"
    if member.waits_for_us:
        return "waits"
    return "trains" if member.quiet else "works"


def _format_place(members: NodeRanks, member: RankState, state: State) -> str:
    if state in ("left", "ends"):
        return "has ended" if state == "left" else "ends"
    if state == "trains":
        return "serves" if member.is_of_server else "trains"
    if state == "waits":
        who = member.awaits or find_missing_ranks(members, member.held_at or 0)
        return f"waits for {format_ranks(who)}" if who else "waits"
    checkpoint = members.checkpoint_of(member)
    if checkpoint is None:
        return "ends"
    phase = members.phase_of(member)
    words = checkpoint.words.removeprefix("checkpoint ")
    inside = phase.name.replace("_", " ") if phase else ""
    return f"{words}: {inside}" if inside else words
