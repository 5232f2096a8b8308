"""The two clocks of the watch: late (a deadline) and still (nothing moves). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .members import Member, Members

if TYPE_CHECKING:
    from .known_hang import KnownHang

TRAINING_SILENCE = 60.0  # seconds without a word from a training, at the least, before a look
LEAVING_LIMIT = 60.0  # seconds between the last checkpoint and the process's end
AFTER_A_VERDICT = 2.0  # seconds between looks at what was called hung and stirs
IN_DOUBT = 3.0  # times --stall, for what may be polling and may be waiting for something healthy


@dataclass(frozen=True)
class Limits:
    """What --timeout, --stall and --slow-limit say. `timeouts` by step or phase, "" for all."""

    timeouts: dict[str, float]
    stall: float = 20.0
    slow_limit: float = 5.0
    known: KnownHang | None = None  # what a search asks about


@dataclass(frozen=True)
class Overdue:
    """A rank whose clock ran out, and since when (monotonic)."""

    rank: int
    clock: Literal["late", "still", "known"]
    since: float


def deadline(members: Members, member: Member, limits: Limits) -> float | None:
    """Return the seconds that the member's step or phase may take; None if it is never late."""
    if member.finished:
        return LEAVING_LIMIT
    phase = members.phase_of(member)
    checkpoint = members.checkpoint_of(member)
    if checkpoint is None:
        return None
    # What is never late by itself is late only if it is named.
    names = [*checkpoint.names, *([] if checkpoint.never_late else [""])]
    default: float | None = None if checkpoint.never_late else checkpoint.deadline
    if phase is not None:
        names = [phase.name, *(names if phase.deadline is not None else [])]
        default = phase.deadline
    return next((limits.timeouts[name] for name in names if name in limits.timeouts), default)


def began(members: Members, member: Member) -> float:
    """Return when the clock of the member's step or phase began.

    In lockstep that is when the last rank left the step before; else the rank's own entry; in a
    phase that is never late, the last step of training that it told of.
    """
    if member.finished:
        return member.entered
    if member.phase is not None or members.own is not None:
        return max(member.phase_at, member.entered, member.pulsed_at)
    return max(member.entered, members.opened.get(member.reached, 0.0))


def overdue(members: Members, member: Member, limits: Limits, now: float) -> Overdue | None:
    """Return which clock of a member ran out, None if neither did."""
    if member.left or member.waits_for_us or member.quiet:
        return None
    allowed = _allowed(members, member, limits)
    if now > began(members, member) + allowed:
        return Overdue(member.rank, "late", began(members, member) + allowed)
    # Whoever waits for one that has left may poll, and stir, for ever: a look tells.
    left_alone = members.own is not None and any(one.left for one in members)
    moved_at = member.moved_at if left_alone else max(member.moved_at, member.stirred_at)
    if now > moved_at + limits.stall:
        return Overdue(member.rank, "still", moved_at + limits.stall)
    known = limits.known
    if known and now > moved_at + known.still and known.is_place_of(members, member):
        return Overdue(member.rank, "known", moved_at + known.still)
    return None


def busy_until(members: Members, member: Member, limits: Limits) -> float:
    """Return until when a member may burn CPU in the same places before that is a spin."""
    return began(members, member) + _allowed(members, member, limits) * limits.slow_limit


def asking_until(members: Members, member: Member, limits: Limits, answered: bool) -> float:
    """Return until when it counts as movement that a member asks a peer again and again.

    Whoever is answered may have much to ask; whoever only opens one connection after another is
    more likely to time out.
    """
    lasts = _allowed(members, member, limits) * limits.slow_limit if answered else 0.0
    return member.asks_since + max(lasts, IN_DOUBT * limits.stall)


def has_got_on(member: Member, since: float) -> bool:
    """Return whether a member began a step or phase, or did a step of it, since then."""
    return max(member.entered, member.phase_at, member.pulsed_at) > since


def has_had_its_time(member: Member, limits: Limits, now: float) -> bool:
    """Return whether a member has stood still for so long that doubts count no more."""
    return now > member.moved_at + IN_DOUBT * limits.stall


def _allowed(members: Members, member: Member, limits: Limits) -> float:
    """Return the seconds until a look: a training is never late, but one that only burns CPU and
    does no step is looked at.
    """
    allowed = deadline(members, member, limits)
    if allowed is not None:
        return allowed
    silence = TRAINING_SILENCE if members.own is None else IN_DOUBT * limits.stall
    return max(silence, 10 * member.longest_silence)


def wants_look(member: Member, limits: Limits, now: float) -> bool:
    """Return whether a look now would date what moves: nothing stirs, and no clock has run out.

    What comes only now and then (a byte every ten seconds) shows in no short series of looks.
    """
    if member.left or member.left_at is not None or member.waits_for_us or member.quiet:
        return False
    last = member.looks[-1].at if member.looks else 0.0
    return now > max(last, member.moved_at, member.stirred_at) + limits.stall / 4


def wants_another_look(member: Member, closed_at: float, now: float) -> bool:
    """Return whether a look would tell if a member moves again that was called hung at `closed_at`:
    something of it stirs, and the last look was a while ago.
    """
    if member.left or member.left_at is not None or member.stirred_at <= closed_at:
        return False
    last = member.looks[-1].at if member.looks else closed_at
    return now > last + AFTER_A_VERDICT


def patience(allowed: float | None, limits: Limits, pause: float = 0.0) -> float:
    """Return how long nothing may have moved before a late rank is called hung, in seconds.

    Long deadlines are for steps that pause (a hub that answers every few seconds); short ones are
    not, and the verdict must not keep anybody waiting. `pause` is the longest time between two
    looks that saw it move in this step: the next pause may be twice as long.
    """
    if allowed is None:
        return limits.stall
    return min(limits.stall, max(2.0, allowed / 3, 2 * pause))
