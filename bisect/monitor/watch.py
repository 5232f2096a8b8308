"""The watch of one node: clocks, looks, and what they lead to.

The flow: ranks speak (server) -> members -> clocks run out -> inquiry (looks) -> verdict (closing).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import TYPE_CHECKING

from ..evidence.kernel import status
from ..rank.place import GONE
from . import clocks, loading
from .closing import close, reopen
from .departures import how_it_ended, was_told_to_go
from .ending import has_ended
from .interruptions import meant_for
from .judging import facts_of
from .known_hang import is_past
from .newcomers import Absent
from .server import INTERRUPTING, Server, all_ended
from .stillness import Stillness

if TYPE_CHECKING:
    from ..facts import Ended
    from .inquiry import Inquiry
    from .job import Job

TICK = 0.25  # seconds
QUIET_TICK = 5.0
SAMPLE_EVERY = 1.0
REMIND_EVERY = 5.0
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
        self._stillness: dict[int, Stillness] = {}  # by rank
        self._inquiry: Inquiry | None = None
        self._absent = Absent(job)
        self._loading: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Watch until the job has its verdict and every rank is gone."""
        job = self.job
        while not self._is_over():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(job.changed.wait(), QUIET_TICK if job.is_quiet else TICK)
            job.changed.clear()
            now = time.monotonic()
            if now - self._sampled > SAMPLE_EVERY and not job.is_quiet:
                self._sampled = now
                self._sample()
            if self._loading is None and now > job.began + loading.AFTER:
                self._loading = asyncio.create_task(asyncio.to_thread(loading.load))
            if now - self._reminded > REMIND_EVERY:
                self._reminded = now
                self.server.remind()
            if job.verdict is None or not job.ends_it:
                await self._judge(now)
            job.live.show()

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
            if job.verdict is not None:
                reopen(job)  # it has got on since the last look
            await close(job, self.server, "done", [facts_of(m) for m in job.members])
        elif ended in ("crash", "left", "interrupted"):
            await self._some_left(ended)
        elif job.verdict is not None and job.own:
            await self._take_back(now)  # a hang that is interrupted stays what it was
        elif self._interrupted():
            await self._last_look("interrupted")
        elif job.verdict is not None:
            await self._take_back(now)
        elif job.settings["past"] and is_past(job.members, job.settings["past"]):
            await self._end_past(job.settings["past"])
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
            from .inquiry import Inquiry

            self._inquiry = self._inquiry or Inquiry(job, self.server, self._interrupted)
            await self._inquiry.hold(due)
        elif quiet := [m for m in job.members if clocks.wants_look(m, job.limits, now)]:
            from .inspection import Inspection

            inspection = Inspection(job, quiet)
            await inspection.look()
            inspection.remember_places()
        elif absent := self._absent.late(now):
            from .inspection import Inspection

            inspection = Inspection(job)
            await inspection.look()
            await close(job, self.server, "late", [*inspection.facts(), *await absent])

    async def _end_past(self, name: str) -> None:
        """Every rank is past what the run was to show: what comes after it is not waited for."""
        self.job.notes.append(f"ended on purpose: every rank was past {name}")
        await close(self.job, self.server, "past", [facts_of(m) for m in self.job.members])

    # ---- ends --------------------------------------------------------------------------------

    def _launcher_is_gone(self) -> bool:
        pid = int(self.job.place["launcher_pid"])
        if pid in (0, 1):  # in another pid namespace, or a container's first process: not known
            return False
        return pid == GONE or self._launcher is None or has_ended(self._launcher)

    def _interrupted(self) -> bool:
        if self._all_were_signalled():
            return True
        if self._launcher_is_gone():
            self.job.notes.append(f"the launcher (pid {self.job.place['launcher_pid']}) is gone")
            self.job.say("The launcher is gone: ending its ranks")
            return True
        return self._signalled

    def _all_were_signalled(self) -> bool:
        """Return whether the signals that ranks heard are for the job, and let one alone be."""
        living = [m.rank for m in self.job.members if not m.left and m.left_at is None]
        meant = meant_for(self.server.signalled, living, time.monotonic())
        if meant == "one":
            self._sample()  # one that is stopped has it pending
            if not self._signalled:
                self.server.leave_alone()
        return meant == "job"

    async def _some_left(self, ended: Ended) -> None:
        if self.job.verdict is not None:
            return
        await asyncio.sleep(GONE_TOGETHER if ended == "left" else 0.1)
        ended = how_it_ended(self.job) or ended
        unknown = any(m.left and m.status is None for m in self.job.members)
        if ended == "left" and unknown and self._interrupted():
            ended = "crash"  # a launcher signals the others only when one has failed
        if ended == "done":
            return
        from .inspection import PAUSE, Inspection

        inspection = Inspection(self.job)
        await inspection.look(limit=LAST_LOOK)
        if ended == "left" and self._others_may_follow():
            await asyncio.sleep(PAUSE)
            await inspection.look(limit=LAST_LOOK)
            settled = inspection.settled()
            if settled.moving | settled.busy or how_it_ended(self.job) != ended:
                inspection.remember_places()
                return
        await close(self.job, self.server, ended, inspection.facts())

    def _others_may_follow(self) -> bool:
        """Return whether ranks that do not wait may leave as well, as the last one did lately."""
        members, now = list(self.job.members), time.monotonic()
        gone = [m.left_at for m in members if m.left_at is not None]
        lately = bool(gone) and now < max(gone) + self.job.limits.stall
        free = any(m.left_at is None and not m.waits_for_us for m in members)
        return lately and free and not self._interrupted()

    async def _last_look(self, ended: Ended) -> None:
        from .inspection import PAUSE, SPAN, Inspection

        inspection = Inspection(self.job)
        await inspection.look(limit=LAST_LOOK, judging=ended != "interrupted")
        if ended == "limit":
            while inspection.span < SPAN:
                await asyncio.sleep(PAUSE)
                await inspection.look(limit=LAST_LOOK)
            settled = inspection.settled()
            ended = "limit" if settled.moving | settled.busy else "late"
        await close(self.job, self.server, ended, inspection.facts())

    async def _take_back(self, now: float) -> None:
        """After --on-hang report or hold: if the culprit moves again, the verdict is void.

        It may be long before it says so itself. Something stirs in a spin as well: a look tells.
        """
        job = self.job
        assert job.verdict is not None
        if job.verdict.outcome == "interrupted":
            return
        named = job.verdict.ranks.culprit or job.verdict.ranks.stuck
        members = [m for m in job.members if m.rank in named]
        if stirring := [m for m in members if clocks.wants_another_look(m, job.closed_at, now)]:
            from .inspection import Inspection, know_spins

            know_spins(stirring)
            inspection = Inspection(job, stirring)
            await inspection.look()
            inspection.remember_places()
        if any(m.moved_at > job.closed_at for m in members):
            await asyncio.sleep(GONE_TOGETHER)  # whoever is told to go moves once more
            if any(m.moved_at > job.closed_at and not was_told_to_go(m) for m in members):
                reopen(job)

    # ---- samples -----------------------------------------------------------------------------

    def _sample(self) -> None:
        """Read counters cheaply: their standing still asks for looks."""
        job = self.job
        job.family.refresh()
        for member in job.members:
            if member.left or member.quiet:
                continue
            if set(status(member.pid).signals_pending) & set(INTERRUPTING):
                self._signalled = True
            pids = [member.pid, *job.family.children(member.pid)]
            stillness = self._stillness.setdefault(member.rank, Stillness())
            member.stirred_at = max(member.stirred_at, stillness.stirred_at(pids))


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
