"""A verdict that did not end the job is looked at again: what was silent is judged once more by a
proof or a time limit that came later, and a hang is taken back where its culprit moves again.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

from ..base.outcomes import STANDS_STILL
from . import clocks
from .finalize import close_job, reopen_job
from .judgement import find_later_proof, is_long_still
from .rank_exits import GONE_TOGETHER, find_job_end, was_asked_to_end

if TYPE_CHECKING:
    from ..base.identity import RankId
    from ..base.rank_facts import Ended
    from ..base.rank_state import RankState
    from .job import Job
    from .server import Server


class VerdictReview:
    """The later looks at one job that has a verdict."""

    def __init__(self, job: Job, server: Server, is_held: Callable[[], bool]) -> None:
        """`is_held`: the job is kept from running, or told to end; then nothing is judged anew."""
        self._job, self._server, self._is_held = job, server, is_held
        self._later_looks: clocks.LaterLooks | None = None  # at what was silent

    def forget_silence(self, ended: Ended) -> None:
        """What was only silent has ended in some way: that is the verdict; of a script of one's own
        only if it failed, and not if who failed had given up on those that are silent. Where ranks
        were told to end it stays what it was: those that are gone tell nothing new.
        """
        job, verdict = self._job, self._job.verdict
        if verdict is None or not self.is_silent() or ended == "interrupted":
            return
        first = self._find_first_gone()
        gave_up = first is not None and first.rank in job.find_members(verdict.ranks.waiting)
        if not job.runs_script or (ended == "crash" and not (gave_up or self.was_put_to_an_end())):
            self.void_verdict()

    def _find_first_gone(self) -> RankState | None:
        """Return the rank that ended first since the verdict, None for none."""
        job = self._job
        gone = [m for m in job.members if m.left_at is not None and m.left_at > job.closed_at]
        return min(gone, key=lambda member: member.left_at or 0.0, default=None)

    def was_put_to_an_end(self) -> bool:
        """Return whether the first rank of a script that has ended since it stood still was ended
        by others: it said no goodbye, as a Python does that comes to its end, and its status is
        that of a SIGKILL or not known. Nothing of it has moved on then, and the verdict stays.
        """
        job, first = self._job, self._find_first_gone()
        if first is None or job.verdict is None or job.verdict.outcome not in STANDS_STILL:
            return False
        is_unsaid = not (first.said_goodbye or first.finished or first.error)
        return job.runs_script and is_unsaid and first.status in (-signal.SIGKILL, None)

    def is_silent(self) -> bool:
        """Return whether the job was left running by a verdict that nothing proves."""
        verdict = self._job.verdict
        return not self._job.was_ended and verdict is not None and verdict.outcome == "silent"

    def void_verdict(self) -> None:
        """Let the job be judged anew."""
        self._job.verdict, self._job.closing = None, False

    def find_limit(self, now: float) -> Literal["limit", "deadline"] | None:
        """Return which time limit is over for what was silent: that of the whole, or the deadline
        of a step and with it what limits its wait.
        """
        job, verdict = self._job, self._job.verdict
        limit = job.settings["limit"]
        if verdict is None:
            return None
        if job.ends_it and bool(limit) and now > job.started + limit:
            return "limit"
        over = any(now > end for end in job.find_deadlines(verdict).values())
        is_late = now >= job.silent_until and (over or job.has_no_deadline(verdict))
        return "deadline" if is_late else None

    async def look_for_proof(self, now: float) -> bool:
        """Look now and then, ever more seldom, for a proof that came later than the verdict; return
        whether there is one, and the job was judged by it.
        """
        from .inspection import take_series

        job, verdict, later = self._job, self._job.verdict, self._later_looks
        assert verdict is not None
        if later is None or later.since != job.closed_at:
            later = self._later_looks = clocks.LaterLooks(job.closed_at)
        if not later.is_due(now):
            return False
        inspection = await take_series(job)
        if find_job_end(job):  # meanwhile: how it ended is the verdict, if it is another
            return False
        inspection.remember_places()
        named = self._find_named((*verdict.ranks.culprit, *verdict.ranks.stuck))
        stands = named & inspection.settled().hung or named <= {*verdict.ranks.never_started}
        is_due = False
        if stands and not self._is_held():
            proof = await find_later_proof(job, inspection.snapshot())
            is_due = bool(proof) or (job.is_trial and is_long_still(job, verdict))
        if not is_due or find_job_end(job):
            later.wait_longer(time.monotonic())
            return False
        self.void_verdict()
        await close_job(job, self._server, "still", inspection.snapshot())
        return True

    def _find_named(self, ranks: Iterable[RankId]) -> set[RankId]:
        """Return the members that speak for ranks that the verdict names; where none does, for a
        part of a server that is no rank, those that wait for it.
        """
        job = self._job
        assert job.verdict is not None
        named = job.find_members(ranks)
        if not named & {m.rank for m in job.members}:
            named |= {*job.verdict.ranks.waiting}
        return named

    async def take_back(self, now: float) -> None:
        """After --on-hang report or hold: if the culprit moves again, the verdict is void.

        It may be long before it says so itself. Something stirs in a spin as well: a look tells.
        """
        job = self._job
        assert job.verdict is not None
        if job.verdict.outcome == "interrupted":
            return
        found = job.verdict.ranks
        named = self._find_named(found.culprit or found.stuck)
        members = [m for m in job.members if m.rank in named]
        if stirring := [m for m in members if clocks.wants_another_look(m, job.closed_at, now)]:
            from .inspection import Inspection, note_spins

            note_spins(stirring)
            inspection = Inspection(job, stirring)
            await inspection.look()
            inspection.remember_places()
        if any(m.moved_at > job.closed_at for m in members):
            await asyncio.sleep(GONE_TOGETHER)  # whoever is told to go moves once more
            if any(m.moved_at > job.closed_at and not was_asked_to_end(m) for m in members):
                reopen_job(job)
