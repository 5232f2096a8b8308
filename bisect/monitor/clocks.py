"""The two clocks of the watch: late (a deadline) and still (nothing moves).

A search already knows the hang that it looks for. If a rank shows that hang again, a shorter wait
is enough.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

from ..base.lazy_dataclass import dataclass
from ..base.rank_state import NodeRanks, RankState

if TYPE_CHECKING:
    from ..base.identity import RankId
    from ..base.process_facts import Look
    from ..base.verdict_facts import HangPlace


STEADY = "steady"  # in a script of the user's own a rank that reports no more steps is past it


@dataclass(frozen=True)
class KnownHang:
    """Where it is, its stacks, and for how long (seconds) they must stand still to be it."""

    place: HangPlace
    still: float

    def is_place_of(self, members: NodeRanks, member: RankState) -> bool:
        """Return whether a member is in the step and phase in question. A rank that has done all
        steps and does not end counts as in the last one.
        """
        if member.inside is not None:
            inside = member.inside
            return (inside.name, inside.phase) == (self.place.checkpoint, self.place.phase)
        checkpoint = members.checkpoint_of(member) or members.table[-1]
        return (checkpoint.name, member.phase) == (self.place.checkpoint, self.place.phase)

    def is_shown_by(self, looks: Sequence[Look]) -> bool:
        """Return whether looks at a rank show the known stack."""
        from ..search.trial_results import shows_known_hang

        return shows_known_hang(self.place, looks)


def parse_known_hang(found: Mapping[str, Any]) -> KnownHang:
    """Return what a file of --known-hang says."""
    from ..base.verdict_facts import HangPlace

    stacks = tuple(tuple((str(f), str(n)) for f, n in stack) for stack in found["stacks"])
    place = HangPlace(found["checkpoint"], found.get("phase"), stacks=stacks)
    return KnownHang(place, float(found["still"]))


def are_ranks_past(members: NodeRanks, name: str) -> bool:
    """Return whether every rank of this node is past the checkpoint or phase `name`. No running
    rank is past the last checkpoint.
    """
    if not members.by_rank or not members.are_here:
        return False
    if members.user_steps is not None and name == STEADY:
        return all(member.quiet for member in members)
    if members.user_steps is not None:
        return all(members.user_steps.is_past(member, name) for member in members)
    if name == members.table[-1].name:
        return False
    return all(_is_rank_past(members, member, name) for member in members)


def _is_rank_past(members: NodeRanks, member: RankState, name: str) -> bool:
    for checkpoint in members.table:
        if checkpoint.name == name:
            return member.reached >= checkpoint.number
        phases = [phase.name for phase in checkpoint.phases]
        if name in phases:
            beyond = phases[phases.index(name) + 1 :]
            inside = member.step == checkpoint.number and member.phase in beyond
            return inside or member.reached >= checkpoint.number
    return False


TRAINING_SILENCE = 60.0  # seconds without a word from a training, at the least, before a look
LEAVING_LIMIT = 60.0  # seconds between the last checkpoint and the process's end
AFTER_A_VERDICT = 2.0  # seconds between looks at what was called hung and stirs
# Seconds that what can only wait for other nodes may stand still, at the least: a node boots, pulls
# an image, or waits in a queue, and a monitor that does not see it does not judge before that.
OTHER_NODES_LIMIT = 60.0
IN_DOUBT = 3.0  # times --stall, for what may be polling and may be waiting for something healthy


class NodeWait:
    """For how long a launcher has waited for other nodes, as one look after another shows it. One
    that stirs now and then (accelerate's, every 30 s) waits on all the same.
    """

    def __init__(self) -> None:
        """Nobody has looked yet."""
        self._seen, self._since = "", 0.0

    def note(self, waits: str, moved: str, stirred: float) -> float:
        """Take in what a look has shown: in words which nodes are there ("": it does not wait for
        nodes), and what moved. Return since when it has been so (monotonic): from when it `stirred`
        last, as the first look that shows it has it.
        """
        if moved or not waits or waits != self._seen:
            self._seen, self._since = waits, stirred
        return self._since


@dataclass(frozen=True)
class TimeLimits:
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


def find_deadline(members: NodeRanks, member: RankState, limits: TimeLimits) -> float | None:
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


def find_deadlines(
    members: NodeRanks, ranks: Collection[RankId], limits: TimeLimits
) -> dict[int, float]:
    """Return when (monotonic) the deadline of each of these ranks is over, without those whose
    step has none.
    """
    return {
        member.rank: find_clock_start(members, member) + allowed
        for member in members
        if member.rank in ranks and (allowed := find_deadline(members, member, limits)) is not None
    }


def find_clock_start(members: NodeRanks, member: RankState) -> float:
    """Return when the clock of the member's step or phase began.

    In lockstep that is when the last rank left the step before; else the rank's own entry; in a
    phase that is never late, the last step of training that it told of.
    """
    if member.finished:
        return member.entered
    if member.phase is not None or members.user_steps is not None:
        return max(member.phase_at, member.entered, member.pulsed_at)
    return max(member.entered, members.opened.get(member.reached, 0.0))


def find_clock_end(members: NodeRanks, member: RankState, limits: TimeLimits) -> float:
    """Return when the time of a member's step or phase is over (monotonic)."""
    return find_clock_start(members, member) + _allowed_time(members, member, limits)


def find_overdue(
    members: NodeRanks, member: RankState, limits: TimeLimits, now: float
) -> Overdue | None:
    """Return which clock of a member ran out, None if neither did."""
    if member.left or member.waits_for_us or member.quiet:
        return None
    late_since = find_clock_end(members, member, limits)
    if now > late_since:
        return Overdue(member.rank, "late", late_since)
    # A rank that waits for one that has left may poll, and stir, for ever: a look tells.
    left_alone = members.user_steps is not None and any(one.left for one in members)
    moved_at = member.moved_at if left_alone else max(member.moved_at, member.stirred_at)
    if now > moved_at + limits.stall:
        return Overdue(member.rank, "still", moved_at + limits.stall)
    known = limits.known
    if known and now > moved_at + known.still and known.is_place_of(members, member):
        return Overdue(member.rank, "known", moved_at + known.still)
    return None


def busy_until(members: NodeRanks, member: RankState, limits: TimeLimits) -> float:
    """Return until when a member may burn CPU in the same places before that is a spin."""
    return (
        find_clock_start(members, member)
        + _allowed_time(members, member, limits) * limits.slow_limit
    )


def asking_until(
    members: NodeRanks, member: RankState, limits: TimeLimits, answered: bool
) -> float:
    """Return until when it counts as movement that a member asks a peer again and again.

    A rank that gets answers may have much to ask; one that only opens connection after connection
    is more likely to be timing out.
    """
    lasts = _allowed_time(members, member, limits) * limits.slow_limit if answered else 0.0
    return member.asks_since + max(lasts, IN_DOUBT * limits.stall)


FIRST_PAUSE, MOST_PAUSE = 10.0, 300.0  # seconds; each pause is twice as long as the one before


class LaterLooks:
    """When what stood still without a proof of a hang is looked at again: a proof may come later,
    as somebody who is waited for ends, or is absent for too long.
    """

    def __init__(self, since: float) -> None:
        """It was told `since` (monotonic) that it is silent."""
        self.since = since
        self._pause = FIRST_PAUSE
        self._next_at = since + FIRST_PAUSE

    def is_due(self, now: float) -> bool:
        """Return whether it is time to look."""
        return now >= self._next_at

    def wait_longer(self, now: float) -> None:
        """They were looked at until `now`, and nothing new was found."""
        self._pause = min(MOST_PAUSE, 2 * self._pause)
        self._next_at = now + self._pause


def has_progressed(member: RankState, since: float) -> bool:
    """Return whether a member began a step or phase, or did a step of it, since then."""
    return max(member.entered, member.phase_at, member.pulsed_at) > since


def has_used_its_time(member: RankState, limits: TimeLimits, now: float) -> bool:
    """Return whether a member has stood still for so long that doubts count no more."""
    return now > member.moved_at + IN_DOUBT * limits.stall


def _allowed_time(members: NodeRanks, member: RankState, limits: TimeLimits) -> float:
    """Return the seconds until a look: a training is never late, but one that only burns CPU and
    does no step is looked at.
    """
    allowed = find_deadline(members, member, limits)
    if allowed is not None:
        return allowed
    silence = TRAINING_SILENCE if members.user_steps is None else IN_DOUBT * limits.stall
    return max(silence, 10 * member.longest_silence)


def wants_look(member: RankState, limits: TimeLimits, now: float) -> bool:
    """Return whether a look now would date what moves: nothing stirs, and no clock has run out.

    What comes only now and then (a byte every ten seconds) shows in no short series of looks.
    """
    if member.has_left or member.waits_for_us or member.quiet:
        return False
    last = member.looks[-1].at if member.looks else 0.0
    return now > max(last, member.moved_at, member.stirred_at) + limits.stall / 4


def wants_another_look(member: RankState, closed_at: float, now: float) -> bool:
    """Return whether a look would tell if a member moves again that was called hung at `closed_at`:
    something of it stirs, and the last look was a while ago.
    """
    if member.has_left or member.stirred_at <= closed_at:
        return False
    last = member.looks[-1].at if member.looks else closed_at
    return now > last + AFTER_A_VERDICT


def required_stillness(allowed: float | None, limits: TimeLimits, pause: float = 0.0) -> float:
    """Return how long nothing may have moved before a late rank is called hung, in seconds.

    Long deadlines are for steps that pause (a hub that answers every few seconds); with a
    short one the verdict must not come late. `pause` is the longest time between two
    looks that saw it move in this step: the next pause may be twice as long.
    """
    if allowed is None:
        return limits.stall
    return min(limits.stall, max(2.0, allowed / 3, 2 * pause))


def pauses_until(members: NodeRanks, member: RankState, limits: TimeLimits) -> float:
    """Return until when (monotonic) a member that stands still may only pause, 0.0 if nothing says
    so: for twice the longest silence that ended by itself in this step, until its time is over that
    a slow step has.
    """
    longest = member.silences.longest
    if not longest:
        return 0.0
    return min(member.moved_at + 2 * longest, busy_until(members, member, limits))


def restart_clocks(members: NodeRanks, now: float) -> None:
    """Let all clocks begin at `now`: no rank could move before, so what was seen is void."""
    for member in members:
        member.forget_looks()
        member.entered = member.phase_at = member.pulsed_at = now
        member.moved_at = member.stirred_at = now
        if member.waits_for_us:
            member.waits_since = now


@dataclass
class Moments:
    """When things happened to a command that is watched from outside, on the monotonic clock; 0.0
    for never.
    """

    began: float = field(default_factory=time.monotonic)
    stirred: float = field(default_factory=time.monotonic)  # something of the command
    sampled: float = 0.0
    looked: float = 0.0
    ticked: float = field(default_factory=time.monotonic)
    ranks_ended: float = 0.0  # by a verdict of a monitor
    elsewhere: float = float("-inf")  # it had a client of who starts the ranks

    def skip(self, now: float, pause: float) -> None:
        """Nothing ran for `pause` seconds: no clock counts them."""
        self.began += pause
        self.stirred = now
