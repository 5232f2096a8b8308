"""The watch of one node: clocks, looks, and what they lead to.

The flow: ranks speak (server) -> rank_state -> clocks run out -> inquiry (looks) -> verdict
(finalize).

What only a hang needs is loaded here after some seconds (`load_parts_for_a_hang`), before the
disk that it lies on may be what hangs. Not at the start: ranks wait for the monitor then, and
most jobs that end well at once never need it. Whoever needs it earlier imports it where it is
used.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING

from ..base import events
from ..base.place import GONE
from ..base.words import format_seconds
from ..diagnosis.snapshot import Snapshot
from ..evidence.kernel import read_status
from ..evidence.process import open_life
from . import clocks
from .clocks import are_ranks_past
from .finalize import close_job, find_later_proof, is_long_still, reopen_job
from .job_activity import PastStep, Stillness, Suspension, TrainingPulse
from .job_facts import make_rank_facts
from .missing_ranks import MissingRanks
from .monitor_process import DESCRIPTORS, call_in_thread
from .rank_exits import find_job_end, find_signal_target, was_asked_to_end
from .server import INTERRUPTING, Server, have_all_ended

if TYPE_CHECKING:
    from ..base.facts import Ended
    from .inquiry import Inquiry
    from .inspection import Inspection
    from .job import Job


LOAD_AFTER = 10.0  # seconds of a job
_NEEDED_FOR_A_HANG = (
    *("monitor.inquiry", "monitor.inspection", "monitor.job_facts"),
    *("evidence.look", "evidence.machine", "evidence.ring_reader"),
    *("diagnosis.blame", "diagnosis.failure_verdict", "diagnosis.causes.catalogue"),
    *("report.terminal", "report.run_reader.run_files", "report.stacks"),
)


def load_parts_for_a_hang() -> None:
    """Import it. May block, so call it in a thread; never raises."""
    package = __name__.partition(".")[0]
    for name in _NEEDED_FOR_A_HANG:
        with contextlib.suppress(Exception):  # then it fails where it is used, and is told there
            import_module(f"{package}.{name}")


JUDGE = "judge the job"
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
        self._launcher = open_life(int(job.place["launcher_pid"]))
        self._suspension = Suspension(job)
        self._paused = ""  # why the job is kept from running
        self._said_alone = self._all_ended = False
        self._stillness: dict[int, Stillness] = {}  # by rank
        self._inquiry: Inquiry | None = None
        self._pulse = TrainingPulse(job.limits.stall)
        self._past_step: PastStep | None = None
        self._later_looks: clocks.LaterLooks | None = None  # at what was silent
        self._is_past_start = False  # ranks were quiet, and have a verdict all the same
        self._looks_at_training = False  # at this moment, because no step has come
        self._absent = MissingRanks(job)
        self._loading: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Watch until the job has its verdict and every rank is gone. What fails meanwhile ends
        nothing: the rest is watched on, and ranks wait for us no more.
        """
        job = self.job
        job.failures.happened = self._step_back
        if (
            job.own
        ):  # nobody has looked at them so far (Job.doze): they have stood still from now on
            for member in job.members:
                member.moved_at = member.stirred_at = time.monotonic()
        while not self._is_over():
            tick, before = QUIET_TICK if job.is_quiet else TICK, time.monotonic()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(job.changed.wait(), tick)
            job.changed.clear()
            now = time.monotonic()
            self._heed_pauses(now, late=now - before - tick)
            self._note_the_last_end()
            if now - self._sampled > SAMPLE_EVERY and not job.is_quiet:
                self._sampled = now
                await self._try("take samples of the ranks", self._sample)
            if now - self._reminded > REMIND_EVERY:
                self._reminded = now
                await self._try("remind ranks", self.server.remind)
            if self._is_past_start:
                await self._try("read the pulse of the training", self._hear_training)
            if job.verdict is None or not job.was_ended:
                await self._try(JUDGE, functools.partial(self._find_reason_to_end, now))
            await self._try("show the table of ranks", job.live.show)
            job.outer.flush()
            self._load(now)

    async def _try(self, part: str, call: Callable[[], Awaitable[None] | None]) -> None:
        failures = self.job.failures
        if failures.is_due(part):
            with failures.of(part):
                waits = call()
                if waits is not None:
                    await waits

    def _step_back(self, short_of: str) -> None:
        """Something of the watch failed: no rank waits for it any more. It makes do with less."""
        self.job.closing = self.job.verdict is not None
        if self.job.lockstep:
            self.server.stop_holding("the watch failed")
        if short_of == DESCRIPTORS:
            self.server.spare_descriptors()

    def _note_the_last_end(self) -> None:
        if not self._all_ended and self.job.members.by_rank and have_all_ended(self.job):
            self._all_ended = True
            self.job.failures.forgive(JUDGE)

    def _load(self, now: float) -> None:
        if self._loading is None and now > self.job.began + LOAD_AFTER:
            self._loading = asyncio.create_task(call_in_thread(load_parts_for_a_hang))

    def _heed_pauses(self, now: float, late: float) -> None:
        """Let clocks begin anew after the job, or we ourselves, did not run."""
        job = self.job
        with job.failures.of("see whether the job is stopped"):
            away = self._suspension.we_were_away(late)
            why = "" if job.is_quiet else self._suspension.why()
            if why and not self._paused:
                job.note(None, events.Paused(why=why))
            if away or (self._paused and not why):
                clocks.restart_clocks(job.members, now)
                self._pulse.begin_anew(now)
                self._stillness.clear()
                job.note(None, events.GoesOn())
            self._paused = why

    def _is_paused(self) -> bool:
        """Return whether the job is kept from running at this moment."""
        return bool(self._paused or self._suspension.why() or self._suspension.why_frozen())

    def _is_over(self) -> bool:
        job, now = self.job, time.monotonic()
        if not job.members.by_rank:
            # Whoever started us is gone without a word?
            gone = self._launcher_is_gone()
            return now > job.began + (GONE_TOGETHER if gone else NOBODY_SPEAKS)
        if job.verdict is None:
            return job.failures.is_hopeless(JUDGE) and have_all_ended(job)
        # What sits in the kernel cannot be ended; it has been named.
        return have_all_ended(job) or (job.was_ended and now > job.closed_at + OUTLIVED)

    async def _find_reason_to_end(self, now: float) -> None:
        """Look for a reason to end, in the order in which reasons count."""
        job = self.job
        ended = find_job_end(job)
        if ended is not None and ended != "done":
            self._forget_silence(ended)
        if ended == "done":
            if job.verdict is not None:
                reopen_job(job)  # it has got on since the last look
            await close_job(job, self.server, "done", Snapshot(map(make_rank_facts, job.members)))
        elif ended in ("crash", "left", "interrupted"):
            await self._some_left(ended)
        elif job.verdict is not None and job.own:
            if self._launcher_is_gone():
                self._without_launcher()
            if not await self._judge_again(now):
                await self._take_back(now)  # a hang that is interrupted stays what it was
        elif self._interrupted():
            await self._last_look("interrupted")
        elif job.verdict is not None:
            if not await self._judge_again(now):
                await self._take_back(now)
        elif job.settings["past"] and self._are_past(job.settings["past"], now):
            await self._end_past(job.settings["past"])
        elif job.settings["limit"] and now > job.started + job.settings["limit"]:
            await self._last_look("limit")
        elif not self._paused:
            await self._clocks(now)

    def _forget_silence(self, ended: Ended) -> None:
        """What was only silent has ended in some way: that is the verdict; of a script of one's own
        only if it failed, and not if who failed had given up on those that are silent.
        """
        job, verdict = self.job, self.job.verdict
        if verdict is None or verdict.outcome != "silent" or job.was_ended:
            return
        gone = [m for m in job.members if m.left_at is not None and m.left_at > job.closed_at]
        first = min(gone, key=lambda member: member.left_at or 0.0, default=None)
        gave_up = first is not None and first.rank in verdict.ranks.waiting
        if not job.own or (ended == "crash" and not gave_up):
            job.verdict, job.closing = None, False

    async def _judge_again(self, now: float) -> bool:
        """Judge once more what stood still and was not proved to hang: once a deadline is over, and
        what limits its wait, or once a proof has come; return whether that is so.
        """
        job, verdict = self.job, self.job.verdict
        if job.was_ended or verdict is None or verdict.outcome != "silent":
            return False
        limit = job.settings["limit"]
        is_over = job.ends_it and bool(limit) and now > job.started + limit
        is_late = now >= job.silent_until and any(
            now > over for over in job.find_deadlines(verdict).values()
        )
        if self._paused or not (is_over or is_late):
            return await self._look_for_proof(now)
        job.verdict, job.closing = None, False
        for member in job.members:
            member.look_again_at = 0.0
        await (self._last_look("limit") if is_over else self._clocks(now))
        return True

    async def _look_for_proof(self, now: float) -> bool:
        """Look now and then, ever more seldom, for a proof that came later than the verdict; return
        whether there is one, and the job was judged by it.
        """
        job, verdict, later = self.job, self.job.verdict, self._later_looks
        assert verdict is not None
        if later is None or later.since != job.closed_at:
            later = self._later_looks = clocks.LaterLooks(job.closed_at)
        if self._paused or not later.is_due(now):
            return False
        inspection = await self._take_series()
        inspection.remember_places()
        named = {*verdict.ranks.culprit, *verdict.ranks.stuck}
        stands = named & inspection.settled().hung or named <= {*verdict.ranks.never_started}
        is_due = False
        if stands and not (self._is_paused() or self._interrupted()):
            proof = await find_later_proof(job, inspection.snapshot())
            is_due = bool(proof) or (job.is_trial and is_long_still(job, verdict))
        if not is_due:
            later.wait_longer(time.monotonic())
            return False
        job.verdict, job.closing = None, False
        await close_job(job, self.server, "still", inspection.snapshot())
        return True

    async def _take_series(self) -> Inspection:
        """Return looks at all ranks that are enough to judge by."""
        from ..collect.looks import PAUSE
        from .inspection import SPAN, Inspection

        inspection = Inspection(self.job)
        await inspection.look(limit=LAST_LOOK)
        while inspection.span < SPAN:
            await asyncio.sleep(PAUSE)
            await inspection.look(limit=LAST_LOOK)
        return inspection

    # ---- the clocks --------------------------------------------------------------------------

    async def _clocks(self, now: float) -> None:
        job = self.job
        if job.is_quiet:
            await self._look_at_training(now)
            return
        due = [
            found
            for member in job.members
            if now >= member.look_again_at
            and (found := clocks.find_overdue(job.members, member, job.limits, now))
        ]
        if due:
            await self._inquire().look_until_clear(due)
        elif quiet := [m for m in job.members if clocks.wants_look(m, job.limits, now)]:
            from .inspection import Inspection

            inspection = Inspection(job, quiet)
            await inspection.look()
            inspection.remember_places()
        elif absent := self._absent.late(now):
            from .inspection import Inspection

            inspection = Inspection(job)
            await inspection.look()
            never_came = await absent
            if not self._is_paused():
                seen = inspection.snapshot()
                await close_job(job, self.server, "late", seen.update([*seen.ranks, *never_came]))

    def _inquire(self) -> Inquiry:
        from .inquiry import Inquiry

        self._inquiry = self._inquiry or Inquiry(
            self.job,
            self.server,
            lambda: self._interrupted() or self._is_paused() or self._trains_again(),
        )
        return self._inquiry

    def _read_pulses(self) -> bool:
        """Read the pulses of the ranks; return whether a step has come since the last time."""
        job = self.job
        living = [member for member in job.members if not member.left]
        pulses = {member.rank: job.logs.read_pulse(member.rank) for member in living}
        for member in living:
            if (pulse := pulses[member.rank]) is not None and member.trained is not None:
                member.trained = pulse.steps
        return self._pulse.hear(pulses.values())

    def _trains_again(self) -> bool:
        """Return whether a step has come while ranks are looked at because none came."""
        return self._looks_at_training and self._read_pulses()

    async def _look_at_training(self, now: float) -> None:
        """Look at ranks that have trained, once no step has come for much longer than before; where
        they are at work, let them be, and say nothing.
        """
        job, pulse = self.job, self._pulse
        living = [member for member in job.members if not member.left]
        self._read_pulses()
        if not pulse.has_stopped(now):
            return
        if self._is_paused():
            pulse.begin_anew(now)
            return
        for member in living:  # nobody has looked so far: they have stood still from now on
            member.forget_looks()
            member.quiet, member.moved_at, member.stirred_at = False, now, now
        self._looks_at_training = True
        since = now + job.limits.stall
        why = (
            f"No training step for {format_seconds(now - pulse.at)}; before, none took longer than "
            f"{format_seconds(pulse.longest)}"
        )
        due = [clocks.Overdue(member.rank, "still", since) for member in living]
        try:
            await self._inquire().look_until_clear(due, why)
        finally:
            self._looks_at_training = False
            self._is_past_start = job.verdict is not None
            if job.verdict is None:
                pulse.wait_longer()
                for member in living:
                    member.quiet = True

    def _hear_training(self) -> None:
        """A step that comes is movement; ranks whose verdict was taken back are quiet again."""
        job, pulse = self.job, self._pulse
        living = [member for member in job.members if not member.left]
        has_come = self._read_pulses()
        for member in living if has_come else ():
            member.moved_at = pulse.at
        if job.verdict is None:
            self._is_past_start = False
            if not has_come:
                pulse.wait_longer()
            for member in living:
                member.quiet = True

    def _are_past(self, name: str, now: float) -> bool:
        """Return whether every rank is past what --past names: a step, a phase, or so many training
        steps.
        """
        members = self.job.members
        if not name.isdecimal():
            return are_ranks_past(members, name)
        if self._past_step is None:
            self._past_step = PastStep(int(name))
        if not members.are_here or not self.job.is_quiet:
            return False
        self._read_pulses()
        return self._past_step.is_reached([one.trained for one in members if not one.left], now)

    async def _end_past(self, name: str) -> None:
        """Every rank is past what the run was to show: what comes after it is not waited for."""
        name = f"training step {name}" if name.isdecimal() else name
        self.job.notes.append(f"ended on purpose: every rank was past {name}")
        seen = Snapshot(map(make_rank_facts, self.job.members))
        await close_job(self.job, self.server, "past", seen)

    # ---- ends --------------------------------------------------------------------------------

    def _launcher_is_gone(self) -> bool:
        pid = int(self.job.place["launcher_pid"])
        if pid in (0, 1):  # in another pid namespace, or a container's first process: not known
            return False
        return pid == GONE or self._launcher.has_ended()

    def _interrupted(self) -> bool:
        if self._all_were_signalled():
            return True
        if self._launcher_is_gone():
            return self._without_launcher()
        return self._signalled

    def _without_launcher(self) -> bool:
        """The launcher is gone. Return whether its ranks are lost without it: those of a pipeline
        would hang on. A script of the user's own goes on, and is watched on.
        """
        job = self.job
        pid = int(job.place["launcher_pid"])
        which = f"The launcher (pid {pid})" if pid != GONE else "The launcher"
        if job.own or not job.place["launcher"]:
            if not self._said_alone and job.place["launcher"] and not have_all_ended(job):
                self._said_alone = True
                job.notes.append(f"{which[0].lower()}{which[1:]} is gone")
                job.say(f"{which} is gone; its ranks go on, still watched")
            return self._signalled
        job.notes.append(f"the launcher (pid {pid}) is gone")
        job.say("The launcher is gone: ending its ranks")
        return True

    def _all_were_signalled(self) -> bool:
        """Return whether the signals that ranks heard are for the job, and let one alone be."""
        living = [m.rank for m in self.job.members if not m.has_left]
        meant = find_signal_target(self.server.signalled, living, time.monotonic())
        if meant == "one":
            self._sample()  # one that is stopped has it pending
            if not self._signalled:
                self.server.leave_alone()
        return meant == "job"

    async def _some_left(self, ended: Ended) -> None:
        if self.job.verdict is not None:
            return
        await asyncio.sleep(GONE_TOGETHER if ended == "left" else 0.1)
        ended = find_job_end(self.job) or ended
        unknown = any(m.left and m.status is None for m in self.job.members)
        if ended == "left" and unknown and self._interrupted():
            ended = "crash"  # a launcher signals the others only when one has failed
        if ended == "done":
            return
        from ..collect.looks import PAUSE
        from .inspection import Inspection

        inspection = Inspection(self.job)
        await inspection.look(limit=LAST_LOOK)
        if ended == "left" and self._others_may_follow():
            await asyncio.sleep(PAUSE)
            await inspection.look(limit=LAST_LOOK)
            settled = inspection.settled()
            if settled.moving | settled.busy or find_job_end(self.job) != ended:
                inspection.remember_places()
                return
        await close_job(self.job, self.server, ended, inspection.snapshot())

    def _others_may_follow(self) -> bool:
        """Return whether ranks that do not wait may leave as well, as the last one did lately."""
        members, now = list(self.job.members), time.monotonic()
        gone = [m.left_at for m in members if m.left_at is not None]
        lately = bool(gone) and now < max(gone) + self.job.limits.stall
        free = any(m.left_at is None and not m.waits_for_us for m in members)
        return lately and free and not self._interrupted()

    async def _last_look(self, ended: Ended) -> None:
        from .inspection import Inspection

        if ended == "limit":
            inspection = await self._take_series()
            settled = inspection.settled()
            ended = "limit" if settled.moving | settled.busy else "late"
        else:
            inspection = Inspection(self.job)
            await inspection.look(limit=LAST_LOOK, judging=ended != "interrupted")
        await close_job(self.job, self.server, ended, inspection.snapshot())

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
            from .inspection import Inspection, note_spins

            note_spins(stirring)
            inspection = Inspection(job, stirring)
            await inspection.look()
            inspection.remember_places()
        if any(m.moved_at > job.closed_at for m in members):
            await asyncio.sleep(GONE_TOGETHER)  # whoever is told to go moves once more
            if any(m.moved_at > job.closed_at and not was_asked_to_end(m) for m in members):
                reopen_job(job)

    # ---- samples -----------------------------------------------------------------------------

    def _sample(self) -> None:
        """Read counters cheaply: their standing still asks for looks."""
        job = self.job
        job.family.refresh()
        for member in job.members:
            if member.left or member.quiet:
                continue
            if set(read_status(member.pid).signals_pending) & set(INTERRUPTING):
                self._signalled = True
            pids = [member.pid, *job.family.children(member.pid)]
            stillness = self._stillness.setdefault(member.rank, Stillness())
            member.stirred_at = max(member.stirred_at, stillness.stirred_at(pids))
