"""Where ranks are, for the live table. A file of its own since it is loaded with the first table,
and not while ranks wait for the monitor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..base.rank_state import NodeRanks, RankState, TableState, find_missing_ranks
from ..base.words import format_ranks
from ..report.live_table import RankNow
from . import clocks
from .clocks import TimeLimits

if TYPE_CHECKING:
    from ..link.messages import TableRow
    from .job import Job

STILL_SHOWN = 5.0  # seconds without movement that are worth a word


def locate_ranks(job: Job, clock: float) -> Sequence[RankNow]:
    """Return where the ranks of this node are at `clock`; () where nothing is watched any more."""
    if job.verdict is not None or job.is_quiet or all(member.left for member in job.members):
        return ()
    return [locate_rank(job.members, one, job.limits, clock) for one in job.members]


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


def _find_state(member: RankState) -> TableState:
    if member.has_left:
        return "left"
    if member.finished:
        return "ends"
    if member.waits_for_us:
        return "waits"
    return "trains" if member.quiet else "works"


def _format_place(members: NodeRanks, member: RankState, state: TableState) -> str:
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


def give_rows(ranks: Iterable[RankNow], clock: float) -> tuple[TableRow, ...]:
    """Return a node's ranks as it tells them to who shows those of all nodes: a row for each place;
    `clock` is its own, which is no other node's.
    """
    from ..link.messages import TableRow  # of jobs on several nodes alone

    rows: dict[tuple[object, ...], list[RankNow]] = {}
    for one in ranks:
        times = (one.since, one.until, one.still_since)
        rows.setdefault((one.state, one.place, one.number, one.moves, *times), []).append(one)
    return tuple(
        TableRow(
            tuple(one.rank for one in row),
            *(row[0].state, row[0].place, row[0].number),
            since=max(0.0, clock - row[0].since),
            left=None if (until := row[0].until) is None else until - clock,
            still=None if (still := row[0].still_since) is None else max(0.0, clock - still),
            moves=row[0].moves,
        )
        for row in rows.values()
    )


def take_rows(rows: Iterable[TableRow], clock: float) -> list[RankNow]:
    """Return the ranks of another node, which told this at `clock`, the own one."""
    return [
        RankNow(
            *(rank, row.state, row.place, row.number, clock - row.since),
            until=None if row.left is None else clock + row.left,
            still_since=None if row.still is None else clock - row.still,
            moves=row.moves,
        )
        for row in rows
        for rank in row.ranks
    ]
