"""A series of looks at ranks of this node: when a clock ran out, and when one may move again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..base.deadline import call_with_limit
from ..base.identity import RankId
from ..base.process_facts import Look
from ..base.rank_facts import RankFacts
from ..base.rank_state import RankState
from ..collect.beside import ProcessesBeside
from ..collect.looks import (
    PAUSE,
    LockHolders,
    LookSeries,
    may_pause,
    take_good_looks,
    waits_for_another,
)
from ..diagnosis.process.spin_waits import waits_by_spinning
from ..evidence import movement
from ..evidence.look import Target
from ..evidence.periodic_threads import PeriodicThreads
from ..evidence.rank_parents import list_server_processes
from ..evidence.ray_cluster import find_actors, leave_out_services
from ..evidence.source_code import add_code_around
from ..evidence.successive_looks import PeerRequest, find_peer_request
from . import clocks
from .ending import resume_process
from .job_facts import make_rank_facts
from .rank_exits import find_present

if TYPE_CHECKING:
    from .job import Job

SPAN = 2.0  # seconds that looks must span before a rank is called hung
GOES_ON = "does one step after the other"
LAST_LOOK = 1.5  # seconds for a look at a job that is about to end
_SOURCE_LIMIT = 0.5  # seconds for reading the source of a rank's lines
KEPT = 9  # looks kept of each process


def note_spins(members: Sequence[RankState]) -> None:
    """Make other lines of the functions in which a member burns CPU no news in later looks."""
    for member in members:
        if movement.describe_computing(member.looks):
            member.places |= movement.collect_functions(member.looks)


class Inspection(LookSeries):
    """Looks at all ranks of this node and their descendants, and what they show together."""

    def __init__(self, job: Job, members: Sequence[RankState] | None = None) -> None:
        """Look at `members`, all if None. Of earlier looks in the same step the last is kept:
        what comes only now and then shows in no short series.
        """
        super().__init__(KEPT, clocks.IN_DOUBT * job.limits.stall)
        self.job = job
        self.members = list(job.members) if members is None else list(members)
        self.moved: dict[int, str] = {}
        self.busy: dict[int, bool] = {}
        self.present = find_present(job)  # as it began
        self._services: set[int] = set()  # processes of the job that are not looked at
        # Kept from one inquiry to the next: what polls is in the same places again.
        self._holders = job.lock_holders = job.lock_holders or LockHolders()
        self._beside = ProcessesBeside()
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
        native: frozenset[RankId] = frozenset(),
        limit: float = 3.0,
        judging: bool = True,
    ) -> None:
        """Look once at every living rank and its descendants; `native` ranks are paused for it.

        Without `judging` it is no sign of movement: ranks that were signalled run their handlers.
        """
        job = self.job
        job.family.refresh()
        members = [m for m in self.members if not m.has_left]
        targets: list[tuple[RankState, Target]] = []
        for member in members:
            targets.append((member, self._target(member)))
            below = job.family.descendants(member.pid)
            shown = leave_out_services(below)
            self._services.update(set(below) - set(shown))
            if "ray" in member.versions and not member.is_actor and len(below) == len(shown):
                shown = [*shown, *(set(find_actors(member.pid)) - set(shown))]
            if job.ended_children is not None:  # that these come and go moves nothing on
                shown = job.ended_children.select_others(shown)
            targets += [(member, Target(pid, "child")) for pid in shown]
        # What started the ranks of an inference server waits for them, and they for it.
        beside = list_server_processes([m.pid for m in job.members if not m.has_left])
        targets += [(members[0], Target(pid, "child")) for pid in beside]
        targets += self._find_what_is_asked(members, {target.pid for _, target in targets})
        holders = self._find_lock_holders()
        paused = [t for m, t in targets if m.rank in native and self._may_pause(m, t)]
        calm = [*(t for _, t in targets if t not in paused), *holders]
        async with job.looking:
            looks, _ = await asyncio.gather(
                take_good_looks(calm, paused, limit=limit, resume=resume_process),
                self.read_logs(job.logs.read_all, [member.rank for member in job.members]),
            )
        # One rank may have started another.
        found = {one.pid: one for one in looks if not self._holders.add(one, self.keep)}
        self.add((m, found[target.pid]) for m, target in targets if target.pid in found)
        if judging:
            self.note_who_moved(members)

    def add(self, looks: Iterable[tuple[RankState, Look]]) -> None:
        """Keep what one look found, each with its rank."""
        for member, one in looks:
            # Our own sockets are no evidence: a rank's link to us is always silent when it hangs.
            ours = str(self.job.folder)
            sockets = tuple(s for s in one.sockets if ours not in s.local and ours not in s.peer)
            of_rank = one.pid == member.pid
            before = member.looks if of_rank else member.children.setdefault(one.pid, [])
            one = self._beside.show(replace(one, sockets=sockets))
            self.keep(before, one)
            if of_rank:
                member.helpers = member.helpers or PeriodicThreads()
                member.helpers.note(one)
        self.count += 1

    def _find_what_is_asked(
        self, members: Sequence[RankState], known: Collection[int]
    ) -> list[tuple[RankState, Target]]:
        """Return what was started beside the ranks and one of them asks, with that one."""
        seen = [
            (member.pid, looks[-1])
            for member in members
            for looks in (member.looks, *member.children.values())
            if looks
        ]
        ranks = {member.pid for member in self.job.members}  # those that are not looked at too
        found = self._beside.find(seen, {*known, *ranks, os.getpid(), *self.job.outer.pids()})
        by_pid = {member.pid: member for member in members}
        for pid, rank in found.items():
            by_pid[rank].beside.add(pid)
        return [(by_pid[rank], Target(pid, "child")) for pid, rank in found.items()]

    def _find_lock_holders(self) -> list[Target]:
        seen = [
            (member.pid, looks[-1])
            for member in self.members
            for looks in (member.looks, *member.children.values())
            if looks
        ]
        ours = {pid for m in self.job.members for pid in (m.pid, *m.children)}
        return self._holders.find(seen, ours | {os.getpid()} | set(self.job.outer.pids()))

    def note_who_moved(self, members: Sequence[RankState]) -> None:
        """Note which of these ranks have moved."""
        for member in members:
            self._note_movement(member)
        self._count_answers(members)
        for member in members:
            self._note_silence(member, time.monotonic())

    def facts(self) -> list[RankFacts]:
        """Return every rank as a diagnosis takes it."""
        return [
            make_rank_facts(
                m,
                self.moved.get(m.rank, ""),
                self.busy.get(m.rank, False),
                self.logs.get(m.rank),
            )
            for m in self.job.members
        ]

    def had_time(self) -> set[int]:
        """Return the ranks that have used the time of their step."""
        limits, now = self.job.limits, time.monotonic()
        return {m.rank for m in self.job.members if clocks.has_used_its_time(m, limits, now)}

    def spinning(self) -> frozenset[RankId]:
        """Return the ranks that burn CPU in a wait for a GPU, or in MPI for others, past the time
        of their step: with that they are judged as if they slept in it.
        """
        limits, now = self.job.limits, time.monotonic()
        return frozenset(
            member.rank
            for member in self.members
            if self.busy.get(member.rank, False)
            and now > clocks.find_clock_end(self.job.members, member, limits)
            and waits_by_spinning([one for one in member.looks if one.at >= self.began])
        )

    async def read_calls(self, ranks: Collection[RankId]) -> None:
        """Have in the last look at each of these ranks what the lines call in which it stands."""
        for member in self.members:
            if member.rank in ranks and member.looks:
                with contextlib.suppress(TimeoutError):
                    member.looks[-1] = await call_with_limit(
                        add_code_around, member.looks[-1], limit=_SOURCE_LIMIT, key="source"
                    )

    def _target(self, member: RankState) -> Target:
        stacks = str(self.job.stacks_file(member.rank)) if self.job.cannot_look else None
        return Target(member.pid, "rank", stacks)

    def _may_pause(self, member: RankState, target: Target) -> bool:
        """Return whether a process of a rank that may be paused may be so itself."""
        if target.pid in member.beside:
            return False
        return target.pid == member.pid or may_pause(member.children.get(target.pid, ()))

    def _note_movement(self, member: RankState) -> None:
        children, seen = list(member.children.values()), member.places | self._known_places(member)
        moved = movement.describe_movement(
            *self._without_periodic(member), seen
        ) or self._holders.describe_work(member.pid, SPAN)
        self.moved[member.rank] = moved
        self.busy[member.rank] = movement.is_busy(member.looks, children, moved)
        # Each step that it tells of makes earlier looks void, and with them what moved.
        if not self.moved[member.rank] and clocks.has_progressed(member, self.began):
            self.moved[member.rank] = GOES_ON
        if self.moved[member.rank]:
            self._moves(member, time.monotonic(), self.moved[member.rank])
            member.asks_since = 0.0

    def _note_silence(self, member: RankState, now: float) -> None:
        if self.busy[member.rank]:
            member.silences.sees_work(now)
        elif not self.moved[member.rank] and not member.waits_for_us:
            member.silences.sees_still(member.moved_at, now)

    def _without_periodic(
        self, member: RankState, below: bool = False
    ) -> tuple[Sequence[Look], Sequence[Sequence[Look]]]:
        """Return the looks at a member and its children without what only comes round again;
        `below`: at those alone that it has started.
        """
        found = member.children.items()
        children = [looks for pid, looks in found if not (below and pid in member.beside)]
        helpers = member.helpers
        return (member.looks, children) if helpers is None else helpers.drop(member.looks, children)

    def _known_places(self, member: RankState) -> frozenset[movement.CodePlace]:
        """Return the places of looks that show the known hang: its own loops are no news in it."""
        known = self.job.limits.known
        if known is None or not known.is_place_of(self.job.members, member):
            return frozenset()
        return movement.collect_places(one for one in member.looks if known.is_shown_by([one]))

    def _moves(self, member: RankState, at: float, what: str) -> None:
        if member.seen_moving_at:
            member.longest_pause = max(member.longest_pause, at - member.seen_moving_at)
        member.silences.ends(at, self.job.limits.stall / 2)
        member.seen_moving_at = at
        member.moved_at = max(member.moved_at, at)
        member.moving = self.moved[member.rank] = what

    def _count_answers(self, members: Sequence[RankState]) -> None:
        """Count it as movement, for a while, that a rank asks a process outside the job."""
        ours = {pid for m in self.job.members for pid in (m.pid, *m.children)} | self._services
        ours -= {*self._beside.asked_by}
        asks = {
            m.rank: found
            for m in members
            if not self.moved[m.rank]
            and (found := find_peer_request(*self._without_periodic(m, below=True), ours))
            is not None
        }
        waits = self.snapshot().waits if asks else {}
        for member in members:
            found = asks.get(member.rank)
            if found is not None and not waits_for_another(waits[member.rank], member.rank):
                self._asks(member, found)

    def _asks(self, member: RankState, found: PeerRequest) -> None:
        member.asks_since = member.asks_since or found.at
        members, limits = self.job.members, self.job.limits
        until = clocks.asking_until(members, member, limits, answered=found.answered)
        is_new = found.heard and found.at > member.silences.heard_at
        # A heartbeat comes more often than what takes its time for each answer.
        if is_new and member.silences.lasted >= limits.stall:
            until = max(until, clocks.busy_until(members, member, limits))
        if found.at <= until:
            self._moves(member, found.at, found.text)
        if is_new:
            member.silences.hears(found.at)

    def computing(self, member: RankState) -> str:
        """Return who burns CPU in the same few places, in words."""
        return movement.describe_computing(member.looks, list(member.children.values()))

    def remember_places(self) -> None:
        """Places seen in these looks are no news in later ones."""
        for member in self.job.members:
            member.places |= movement.collect_places(member.looks)
            for looks in member.children.values():
                member.places |= movement.collect_places(looks)


async def take_series(job: Job) -> Inspection:
    """Return looks at all ranks that are enough to judge by."""
    inspection = Inspection(job)
    await inspection.look(limit=LAST_LOOK)
    while inspection.span < SPAN:
        await asyncio.sleep(PAUSE)
        await inspection.look(limit=LAST_LOOK)
    return inspection
