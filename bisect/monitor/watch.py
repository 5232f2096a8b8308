"""The watch of one node: clocks, looks, and what they lead to.

The flow: ranks speak (server) -> members -> clocks run out -> inspection -> verdict (closing).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..diagnosis.waits import wait_of
from ..evidence.kernel import cut_by_a_pause, status
from ..facts import Ended, Look
from ..rank.place import GONE
from ..report.terminal import slow_line
from . import clocks
from .closing import close, reopen
from .departures import how_it_ended
from .ending import has_ended
from .inspection import PAUSE, SPAN, Inspection
from .judging import Settled, waits_for_another
from .members import Member
from .newcomers import look_for_absent
from .server import INTERRUPTING, Server, all_ended

if TYPE_CHECKING:
    from .job import Job

TICK = 0.25  # seconds
SAMPLE_EVERY = 1.0
REMIND_EVERY = 5.0
SLOW_LINE_EVERY = 60.0
LAST_LOOK = 1.5  # seconds for the look at an interrupted job
NOBODY_SPEAKS = 10.0
OUTLIVED = 15.0  # seconds for an ended job to be gone
GONE_TOGETHER = 1.0  # seconds: ranks that leave within it leave together


class Watch:
    """One monitor's loop over its job."""

    def __init__(self, job: Job, server: Server) -> None:
        """Nothing runs before run()."""
        self.job = job
        self.server = server
        self._sampled = self._reminded = 0.0
        self._signalled = False  # a signal waits for a rank that cannot take it
        self._launcher = _open_pidfd(int(job.place["launcher_pid"]))

    async def run(self) -> None:
        """Watch until the job has its verdict and every rank is gone."""
        job = self.job
        while not self._is_over():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(job.changed.wait(), TICK)
            job.changed.clear()
            now = time.monotonic()
            if now - self._sampled > SAMPLE_EVERY:
                self._sampled = now
                self._sample()
            if now - self._reminded > REMIND_EVERY:
                self._reminded = now
                self.server.remind()
            if job.verdict is None or job.settings["on_hang"] != "end":
                await self._judge(now)

    def _is_over(self) -> bool:
        job, now = self.job, time.monotonic()
        if not job.members.by_rank:
            # Whoever started us is gone without a word?
            gone = self._launcher_is_gone()
            return now > job.began + (GONE_TOGETHER if gone else NOBODY_SPEAKS)
        if job.verdict is None:
            return False
        # What sits in the kernel cannot be ended; it has been named.
        return all_ended(job) or (job.was_ended and now > job.closed_at + OUTLIVED)

    async def _judge(self, now: float) -> None:
        """Look for a reason to end, in the order in which reasons count."""
        job = self.job
        ended = how_it_ended(job)
        if ended == "done":
            await close(job, self.server, "done", Inspection(job).facts())
        elif ended in ("crash", "left", "interrupted"):
            await self._some_left(ended)
        elif self._interrupted():
            await self._last_look("interrupted")
        elif job.verdict is not None:
            await self._take_back()
        elif job.settings["limit"] and now > job.started + job.settings["limit"]:
            await self._last_look("limit")
        else:
            await self._clocks(now)

    # ---- the clocks --------------------------------------------------------------------------

    async def _clocks(self, now: float) -> None:
        job = self.job
        due = [
            found
            for member in job.members
            if now >= member.look_again_at
            and (found := clocks.overdue(job.members, member, job.limits, now))
        ]
        if due:
            await self._inspect(due)
        elif quiet := [m for m in job.members if clocks.wants_look(m, job.limits, now)]:
            inspection = Inspection(job, quiet)
            await inspection.look()
            inspection.remember_places()
        elif absent := look_for_absent(job, now):
            await close(job, self.server, "late", [*Inspection(job).facts(), *await absent])

    async def _inspect(self, due: Sequence[clocks.Overdue]) -> None:
        """Look until it is clear which of the ranks that are due hangs, if any."""
        job = self.job
        steps = {d.rank: _step(job.members.by_rank[d.rank]) for d in due}
        for one in due:
            self._announce(one)
        inspection, again = Inspection(job), False
        while True:
            await inspection.look()
            if how_it_ended(job) or self._interrupted():
                return
            due = [d for d in due if _step(job.members.by_rank[d.rank]) == steps[d.rank]]
            ranks = {d.rank for d in due}
            if not due or self._is_clear(inspection, sorted(ranks)):
                settled = inspection.settled()
                if again or not settled.hung & ranks or not settled.moving & ranks:
                    break
                # One hangs and another has just moved: it may be on its way into the same hang.
                inspection, again = Inspection(job), True
            await asyncio.sleep(PAUSE)
        if due:
            await self._decide(inspection, due)

    def _announce(self, due: clocks.Overdue) -> None:
        """Say once a step that its clock ran out, and that we look."""
        job, member = self.job, self.job.members.by_rank[due.rank]
        job.note(member, {"t": "overdue", "clock": due.clock, "since": due.since})
        if member.announced_late == _step(member):
            return
        member.announced_late = _step(member)
        where = member.phase or f"checkpoint {member.step}"
        what = "is late" if due.clock == "late" else "stands still"
        job.say(f"Rank {member.rank} {what} at {where}: looking")

    def _is_clear(self, inspection: Inspection, ranks: Sequence[int]) -> bool:
        """Return whether the looks suffice to say of each rank whether it moves or hangs."""
        if inspection.count < 2:
            return False
        settled = inspection.settled()
        if all(rank in settled.moving for rank in ranks):
            return True
        return inspection.span >= SPAN and all(
            rank not in settled.hung or self._has_been_quiet(rank, settled) for rank in ranks
        )

    def _has_been_quiet(self, rank: int, settled: Settled) -> bool:
        """Return whether all that a verdict on `rank` would rest on has been still long enough.

        Where nobody moves that is every rank: one that still has time may be the one that the
        others wait for, and may just be pausing.
        """
        members, now = self.job.members, time.monotonic()
        somebody_moves = settled.moving | settled.busy
        concerned = [
            m for m in members if m.rank == rank or not (m.left or m.waits_for_us or somebody_moves)
        ]
        limits = self.job.limits
        return all(
            now - m.moved_at >= clocks.patience(clocks.deadline(members, m, limits), limits)
            for m in concerned
        )

    async def _decide(self, inspection: Inspection, due: Sequence[clocks.Overdue]) -> None:
        """Call what hangs hung; let what moves, computes or waits go on."""
        job, now = self.job, time.monotonic()
        settled = inspection.settled()
        ended: Ended | None = None
        first = due[0]
        for one in due:
            member = job.members.by_rank[one.rank]
            allowed = clocks.deadline(job.members, member, job.limits)
            if one.rank in settled.hung:
                if self._opens_barrier(inspection, member):
                    return
                ended, first = "late" if one.clock == "late" else "still", one
                break
            if one.rank in settled.moving:
                self._go_on(inspection, member, inspection.moved[one.rank])
            elif one.rank not in settled.busy:
                member.look_again_at = now + clocks.patience(allowed, job.limits)
            elif now < clocks.began(job.members, member) + self._busy_limit(allowed):
                self._go_on(inspection, member, inspection.computing(member))
            else:
                ended, first = "busy", one
        inspection.remember_places()
        if ended:
            await self._take_native_look(inspection, settled.hung | {first.rank})
            await close(job, self.server, ended, inspection.facts(), due=first)

    def _busy_limit(self, allowed: float | None) -> float:
        return (allowed or clocks.TRAINING_SILENCE) * self.job.limits.slow_limit

    def _go_on(self, inspection: Inspection, member: Member, moved: str) -> None:
        """Late, but not hung: say so once a minute, and look again later."""
        job, now = self.job, time.monotonic()
        member.moving = moved
        allowed = clocks.deadline(job.members, member, job.limits) or job.limits.stall
        member.look_again_at = now + min(job.limits.stall, max(2.0, allowed / 2))
        if now - member.said_slow_at > SLOW_LINE_EVERY:
            member.said_slow_at = now
            job.say(slow_line(job.table, inspection.facts(), member.rank, moved, now))

    def _opens_barrier(self, inspection: Inspection, member: Member) -> bool:
        """Open our barrier if the rank in question waits for one that it holds."""
        job = self.job
        held = [m.rank for m in job.members if m.held_at is not None]
        facts = inspection.facts()
        wait = wait_of(next(f for f in facts if f.rank == member.rank), facts)
        if not held or wait is None or not waits_for_another(wait, member.rank):
            return False
        ranks = ", ".join(map(str, held))
        what = wait.detail or wait.kind
        why = f"rank {member.rank} ({what}) waited for rank {ranks} in our barrier"
        job.say(f"Barrier opened: {why}; going on without barriers")
        self.server.stop_holding(why)
        return True

    async def _take_native_look(self, inspection: Inspection, ranks: frozenset[int]) -> None:
        """Take the one look that pauses, last: whether anything moves has been judged."""
        if self.job.cannot_look:
            return
        before = {m.rank: list(m.looks) for m in self.job.members}
        native = frozenset(r for r in ranks if may_pause(before[r]))
        await inspection.look(native=native)

    # ---- ends --------------------------------------------------------------------------------

    def _launcher_is_gone(self) -> bool:
        pid = int(self.job.place["launcher_pid"])
        if pid in (0, 1):  # in another pid namespace, or a container's first process: not known
            return False
        return pid == GONE or self._launcher is None or has_ended(self._launcher)

    def _interrupted(self) -> bool:
        if self.server.interrupted_by:
            return True
        if self._launcher_is_gone():
            self.job.notes.append(f"the launcher (pid {self.job.place['launcher_pid']}) is gone")
            self.job.say("The launcher is gone: ending its ranks")
            return True
        return self._signalled

    async def _some_left(self, ended: Ended) -> None:
        if self.job.verdict is not None:
            return
        await asyncio.sleep(GONE_TOGETHER if ended == "left" else 0.1)
        ended = how_it_ended(self.job) or ended
        unknown = any(m.left and m.status is None for m in self.job.members)
        if ended == "left" and unknown and self._interrupted():
            ended = "crash"  # a launcher signals the others only when one has failed
        inspection = Inspection(self.job)
        if ended == "done":
            return
        await inspection.look(limit=LAST_LOOK)
        await close(self.job, self.server, ended, inspection.facts())

    async def _last_look(self, ended: Ended) -> None:
        inspection = Inspection(self.job)
        await inspection.look(limit=LAST_LOOK, judging=ended != "interrupted")
        if ended == "limit":
            while inspection.span < SPAN:
                await asyncio.sleep(PAUSE)
                await inspection.look(limit=LAST_LOOK)
            settled = inspection.settled()
            ended = "limit" if settled.moving | settled.busy else "late"
        await close(self.job, self.server, ended, inspection.facts())

    async def _take_back(self) -> None:
        """After --on-hang report or hold: if the culprit moves again, the verdict is void."""
        job = self.job
        assert job.verdict is not None
        ranks = job.verdict.ranks.culprit
        if any(job.members.by_rank[r].moved_at > job.closed_at for r in ranks):
            reopen(job)

    # ---- samples -----------------------------------------------------------------------------

    def _sample(self) -> None:
        """Read counters cheaply: their standing still asks for looks."""
        job = self.job
        job.family.refresh()
        for member in job.members:
            if member.left:
                continue
            if set(status(member.pid).signals_pending) & set(INTERRUPTING):
                self._signalled = True
            pids = [member.pid, *job.family.children(member.pid)]
            member.stirred_at = max(member.stirred_at, member.stillness.stirred_at(pids))


def _step(member: Member) -> tuple[int, int, str | None, int]:
    """Return what changes when a member gets on."""
    return member.reached, member.step, member.phase, member.pulse


def may_pause(looks: Sequence[Look]) -> bool:
    """Return whether a pausing look would leave the rank's wait as it is."""
    return bool(looks) and looks[-1].state in ("S", "R") and not cut_by_a_pause(looks[-1].kernel)


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
