"""A series of looks at every rank, taken when a clock ran out, until it is clear who moves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..diagnosis.waits import waits_of
from ..evidence import movement
from ..evidence.asking import Asking, asking
from ..evidence.carrying import carried_over
from ..evidence.kernel import cut_by_a_pause
from ..evidence.look import Target, look
from ..facts import Look, RankFacts
from ..rank.recorder_answers import THREAD as RECORDER_THREAD
from . import clocks
from .ending import resume
from .judging import Settled, facts_of, settle, waits_for_another
from .members import Member

if TYPE_CHECKING:
    from .job import Job

PAUSE = 0.7  # seconds between two looks
SPAN = 2.0  # seconds that looks must span before a rank is called hung
GOES_ON = "does one step after the other"
KEPT = 8  # looks kept of each process


def may_pause(looks: Sequence[Look]) -> bool:
    """Return whether a pausing look would leave what a process waits for as it is."""
    if not looks or looks[-1].state not in ("S", "R") or looks[-1].frozen:
        return False
    return not cut_by_a_pause(looks[-1].kernel)


def know_spins(members: Sequence[Member]) -> None:
    """Make other lines of the functions in which a member burns CPU no news in later looks."""
    for member in members:
        if movement.computing(member.looks):
            member.places |= movement.functions(member.looks)


class Inspection:
    """Looks at all ranks of this node and their descendants, and what they show together."""

    def __init__(self, job: Job, members: Sequence[Member] | None = None) -> None:
        """Look at `members`, all if None. Of earlier looks in the same step the last is kept:
        what comes only now and then shows in no short series.
        """
        self.job = job
        self.members = list(job.members) if members is None else list(members)
        self.began = time.monotonic()
        self.count = 0
        self.moved: dict[int, str] = {}
        self.busy: dict[int, bool] = {}
        for member in self.members:
            member.looks = member.looks[-1:]
            member.children = {pid: looks[-1:] for pid, looks in member.children.items()}

    @property
    def span(self) -> float:
        """Seconds since the first look."""
        return time.monotonic() - self.began

    async def look(
        self,
        *,
        native: frozenset[int] = frozenset(),
        limit: float = 3.0,
        judging: bool = True,
    ) -> None:
        """Look once at every living rank and its descendants; `native` ranks are paused for it.

        Without `judging` it is no sign of movement: ranks that were signalled run their handlers.
        """
        job = self.job
        job.family.refresh()
        members = [m for m in self.members if not m.left and m.left_at is None]
        targets: list[tuple[Member, Target]] = []
        for member in members:
            targets.append((member, self._target(member)))
            targets += [(member, Target(p, "child")) for p in job.family.children(member.pid)]
        paused = [t for m, t in targets if m.rank in native and self._may_pause(m, t)]
        calm = [t for _, t in targets if t not in paused]
        looks, natives = await asyncio.gather(
            look(calm, limit=limit), look(paused, native=True, limit=limit, resume=resume)
        )
        by_pid = {one.pid: one for one in [*looks, *natives]}
        for member, target in targets:
            if target.pid in by_pid:
                self._keep(member, by_pid[target.pid])
        self.count += 1
        if judging:
            for member in members:
                self._judge(member)
            self._count_answers(members)

    def facts(self) -> list[RankFacts]:
        """Return every rank as a diagnosis takes it."""
        return [
            facts_of(m, self.moved.get(m.rank, ""), self.busy.get(m.rank, False))
            for m in self.job.members
        ]

    def settled(self) -> Settled:
        """Return who moves, waits and hangs, as far as these looks tell."""
        facts, now = self.facts(), time.monotonic()
        limits = self.job.limits
        had_time = {m.rank for m in self.job.members if clocks.has_had_its_time(m, limits, now)}
        return settle(facts, waits_of(facts), had_time, clocks.IN_DOUBT * limits.stall)

    def _target(self, member: Member) -> Target:
        stacks = str(self.job.stacks_file(member.rank)) if self.job.cannot_look else None
        return Target(member.pid, "rank", stacks)

    def _may_pause(self, member: Member, target: Target) -> bool:
        """Return whether a process of a rank that may be paused may be so itself."""
        return target.pid == member.pid or may_pause(member.children.get(target.pid, ()))

    def _keep(self, member: Member, one: Look) -> None:
        # Our own sockets are no evidence: a rank's link to us is always silent when it hangs. Nor
        # is the thread that waits there for us to ask.
        ours = str(self.job.folder)
        sockets = tuple(s for s in one.sockets if ours not in s.local and ours not in s.peer)
        ours_too = {t.os_id for t in one.threads if t.name == RECORDER_THREAD}
        one = replace(
            one,
            sockets=sockets,
            threads=tuple(t for t in one.threads if t.os_id not in ours_too),
            kernel=tuple(k for k in one.kernel if k.tid not in ours_too),
        )
        looks = member.looks if one.pid == member.pid else member.children.setdefault(one.pid, [])
        if looks:
            one = carried_over(looks[-1], one)
            looks[-1] = replace(looks[-1], logs=())  # the newest tails are enough
        looks.append(one)
        del looks[1:-KEPT]  # the first shows what moved since long ago

    def _judge(self, member: Member) -> None:
        children, seen = list(member.children.values()), member.places | self._known_places(member)
        self.moved[member.rank] = movement.moved(member.looks, children, seen)
        self.busy[member.rank] = movement.busy(member.looks, children, seen)
        # Each step that it tells of makes earlier looks void, and with them what moved.
        if not self.moved[member.rank] and clocks.has_got_on(member, self.began):
            self.moved[member.rank] = GOES_ON
        if self.moved[member.rank]:
            self._moves(member, time.monotonic(), self.moved[member.rank])
            member.asks_since = 0.0

    def _known_places(self, member: Member) -> frozenset[movement.Place]:
        """Return the places of looks that show the known hang: its own loops are no news in it."""
        known = self.job.limits.known
        if known is None or not known.is_place_of(self.job.members, member):
            return frozenset()
        return movement.places(one for one in member.looks if known.is_shown_by([one]))

    def _moves(self, member: Member, at: float, what: str) -> None:
        if member.seen_moving_at:
            member.longest_pause = max(member.longest_pause, at - member.seen_moving_at)
        member.seen_moving_at = at
        member.moved_at = max(member.moved_at, at)
        member.moving = self.moved[member.rank] = what

    def _count_answers(self, members: Sequence[Member]) -> None:
        """Count it as movement, for a while, that a rank asks somebody outside the job."""
        ours = {pid for m in self.job.members for pid in (m.pid, *m.children)}
        asks = {
            m.rank: found
            for m in members
            if not self.moved[m.rank]
            and (found := asking(m.looks, list(m.children.values()), ours)) is not None
        }
        waits = waits_of(self.facts()) if asks else {}
        for member in members:
            found = asks.get(member.rank)
            if found is not None and not waits_for_another(waits[member.rank], member.rank):
                self._asks(member, found)

    def _asks(self, member: Member, found: Asking) -> None:
        member.asks_since = member.asks_since or found.at
        until = clocks.asking_until(
            self.job.members, member, self.job.limits, answered=found.answered
        )
        if found.at <= until:
            self._moves(member, found.at, found.text)

    def computing(self, member: Member) -> str:
        """Return who burns CPU in the same few places, in words."""
        return movement.computing(member.looks, list(member.children.values()))

    def remember_places(self) -> None:
        """Places seen in these looks are no news in later ones."""
        for member in self.job.members:
            member.places |= movement.places(member.looks)
            for looks in member.children.values():
                member.places |= movement.places(looks)
