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
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from ..base import events
from ..base.addresses import is_loopback
from ..base.variables import TOKEN_VARIABLE
from ..diagnosis.snapshot import Snapshot
from ..evidence.kernel import read_status
from ..evidence.ray_cluster import leave_out_services
from . import clocks
from .clocks import are_ranks_past
from .ended_children import EndedChildren
from .finalize import close_job, reopen_job
from .job_activity import Stillness, Suspension
from .job_facts import make_rank_facts
from .missing_ranks import MissingRanks
from .monitor_process import DESCRIPTORS, call_in_thread
from .rank_exits import (
    GONE_TOGETHER,
    Interruptions,
    find_job_end,
    have_all_ended,
    may_have_failed,
    may_server_tell,
    was_started_again,
)
from .server import INTERRUPTING, Server
from .training_watch import TrainingWatch
from .verdict_review import VerdictReview

if TYPE_CHECKING:
    from ..base.rank_facts import Ended, RankFacts
    from .inquiry import Inquiry
    from .job import Job
    from .other_nodes import OtherNodes


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


def _has_other_nodes(job: Job) -> bool:
    """Return whether ranks of the job are on other nodes, as their launcher says."""
    place = job.place
    if job.settings.get("nodes") == "off":
        return False
    if place["launcher"] is None:
        return _have_joined_others(job)
    is_part = bool(place["counted"]) and place["world_size"] > place["local_world_size"]
    return is_part and not job.is_one_of_several


def _have_joined_others(job: Job) -> bool:
    """Return whether the ranks here, which no launcher has started, are of a world that is larger,
    whose rank 0 is at an address of the network: each node's program has started its own.
    """
    members = [member for member in job.members if not member.plain]
    master = members[0].environment.get("MASTER_ADDR", "") if members else ""
    have_numbers = bool(members) and members[0].rank >= 0
    is_part = len(members) < job.members.world_size
    has_token = TOKEN_VARIABLE in os.environ or bool(job.settings["run_dir"])
    is_part = is_part and has_token
    return job.runs_script and have_numbers and is_part and bool(master) and not is_loopback(master)


JUDGE = "judge the job"
TICK = 0.25  # seconds
QUIET_TICK = 5.0
SAMPLE_EVERY = 1.0
REMIND_EVERY = 5.0
SETTLED = 3.0  # seconds without a new rank, where nobody says how many a node has
NOBODY_SPEAKS = 10.0
STILL_ENOUGH = 0.9  # of its patience that a rank has stood still when another node's is used up
OUTLIVED = 15.0  # seconds for an ended job to be gone


class Watch:
    """One monitor's loop over its job."""

    def __init__(self, job: Job, server: Server) -> None:
        """Nothing runs before run()."""
        self.job = job
        self.server = server
        self._sampled = self._reminded = 0.0
        self._interruptions = Interruptions(job, server, self._sample)
        self._suspension = Suspension(job)
        self._paused = ""  # why the job is kept from running
        self._all_ended = False
        self._has_judged_end = False
        self._stillness: dict[int, Stillness] = {}  # by rank
        self._inquiry: Inquiry | None = None
        self._training = TrainingWatch(job)
        self._review = VerdictReview(job, server, self._is_held)
        self._absent = MissingRanks(job)
        self._loading: asyncio.Task[None] | None = None
        self._joining: asyncio.Task[None] | None = None
        self._here: tuple[int, ...] = ()  # the ranks that have come, where nobody counts them
        self._here_since = 0.0

    async def run(self) -> None:
        """Watch until the job has its verdict and every rank is gone. What fails meanwhile ends
        nothing: the rest is watched on, and ranks wait for us no more.
        """
        job = self.job
        job.failures.happened = self._step_back
        if job.runs_script:  # no look so far (Job.wait_to_load): they have stood still from now on
            for member in job.members:
                member.moved_at = member.stirred_at = time.monotonic()
        try:
            await self._watch()
        finally:
            await self._leave_other_nodes("its ranks have ended")

    async def _watch(self) -> None:
        job = self.job
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
            await self._try("read the pulse of the training", self._training.hear_what_comes)
            if job.verdict is None or not job.was_ended:
                await self._try("join the other nodes", self._join_other_nodes)
                await self._try(JUDGE, functools.partial(self._find_reason_to_end, now))
            await self._try("show the table of ranks", job.live.show)
            job.outer.flush()
            await self._try("hear that the server is ready", self._hear_ready)
            self._load(now)

    def _hear_ready(self) -> None:
        """What the server has said that all these ranks belong to ends their start."""
        if text := self.job.outer.read_ready():
            self.job.note(None, events.Ready(text=text))
            self.job.is_ready = True
            if self.job.is_trial and not self.job.settings["past"]:
                self.job.settings["past"] = clocks.STEADY  # it has no end of its own
            for member in self.job.members:
                if not (member.quiet or member.left):
                    self.job.note(member, events.Quiet())
                    member.quiet = True

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

    # ---- other nodes -------------------------------------------------------------------------

    async def _join_other_nodes(self) -> None:
        """Join the monitors of other nodes, and look when the one that leads asks for it."""
        job = self.job
        is_open = job.verdict is None or job.verdict.outcome == "silent"
        is_to_be_told = is_open and all(member.left for member in job.members)
        if job.is_quiet and not is_to_be_told:
            await self._leave_other_nodes("its ranks are past what is watched")
        elif job.nodes is not None and self._have_more_come():
            await self._leave_other_nodes("it has more ranks by now")
        elif job.nodes is not None:
            if job.nodes.question:
                await self._look_for_other_nodes(job.nodes.question)
        elif self._joining is None and _has_other_nodes(job) and self._is_complete():
            from .other_nodes import OtherNodes  # most jobs have one node

            job.nodes = OtherNodes(job)
            job.nodes.on_barriers = self.server.hear_other_nodes
            self._joining = asyncio.create_task(self._begin_with(job.nodes))

    def _is_complete(self) -> bool:
        """Return whether it is known which ranks this node has, or one of those is late: who waits
        for it may be on another node.
        """
        members = self.job.members
        if self.job.place["launcher"] is None:
            return self._have_settled()
        has_numbers = not members.unnamed and min(members.expected, default=-1) >= 0
        return members.are_here or has_numbers or self._absent.is_due(time.monotonic())

    def _have_settled(self) -> bool:
        """Return whether no rank has come for a while, where nobody counts them."""
        here, now = tuple(sorted(self.job.members.numbered)), time.monotonic()
        if here != self._here:
            self._here, self._here_since = here, now
        return now > self._here_since + SETTLED

    def _have_more_come(self) -> bool:
        """Return whether ranks have come since this node has told which it has, where nobody counts
        them.
        """
        nodes, here = self.job.nodes, self.job.members.numbered
        return self.job.place["launcher"] is None and nodes is not None and here != {*nodes.ranks}

    async def _begin_with(self, nodes: OtherNodes) -> None:
        with self.job.failures.of("join the other nodes"):
            await nodes.begin()

    async def _leave_other_nodes(self, why: str) -> None:
        nodes, self.job.nodes = self.job.nodes, None
        joining, self._joining = self._joining, None  # they may be joined once more
        if joining is not None:
            joining.cancel()
        if nodes is not None:
            self.job.note(None, events.OtherHosts(hosts=nodes.list_hosts()))
            with self.job.failures.of("leave the other nodes"):
                await nodes.end(why)
            self.server.hear_other_nodes()

    async def _look_for_other_nodes(self, inquiry: int) -> None:
        """Look once more at all ranks of this node, and tell the lead: where they are kept from
        running as well, for those of other nodes wait for them.
        """
        from .inspection import take_series

        job = self.job
        inspection = await take_series(job)
        inspection.remember_places()
        if find_job_end(job) or self._interruptions.are_there():
            return
        seen = inspection.snapshot()
        seen = seen.update([self._note_late_movement(facts) for facts in seen.ranks])
        await close_job(job, self.server, "still", seen, inquiry=inquiry)

    def _note_late_movement(self, facts: RankFacts) -> RankFacts:
        """Return a rank as one that moves, if it has not stood still for long enough to be called
        hung: its own clock has not run out.
        """
        member = self.job.members.by_rank.get(facts.rank) if isinstance(facts.rank, int) else None
        if member is None or facts.moved or member.left or member.waits_for_us:
            return facts
        members, limits, now = self.job.members, self.job.limits, time.monotonic()
        allowed = clocks.find_deadline(members, member, limits)
        patience = clocks.required_stillness(allowed, limits, member.longest_pause)
        still = now - member.moved_at
        is_early = still < STILL_ENOUGH * patience
        is_early = is_early or now < clocks.pauses_until(members, member, limits)
        return replace(facts, moved=f"moved {still:.0f} s ago") if is_early else facts

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
                self._training.pulse.begin_anew(now)
                self._stillness.clear()
                job.note(None, events.GoesOn())
            self._paused = job.paused = why

    def _is_paused(self) -> bool:
        """Return whether the job is kept from running at this moment."""
        return bool(self._paused or self._suspension.why() or self._suspension.why_frozen())

    def _is_held(self) -> bool:
        """Return whether the job is kept from running, or told to end."""
        return self._interruptions.are_there() or self._is_paused()

    def _is_over(self) -> bool:
        job, now = self.job, time.monotonic()
        if not job.members.by_rank:
            # Whoever started us is gone without a word?
            gone = self._interruptions.is_launcher_gone()
            return now > job.began + (GONE_TOGETHER if gone else NOBODY_SPEAKS)
        if job.verdict is None:
            return job.failures.is_hopeless(JUDGE) and have_all_ended(job)
        may_change = job.verdict.outcome == "silent" and not job.was_ended
        may_change = may_change and not job.failures.is_hopeless(JUDGE)
        if may_change and not self._has_judged_end and find_job_end(job):
            return False  # ranks ended while the other nodes were heard
        # What sits in the kernel cannot be ended; it has been named.
        if may_server_tell(job):
            return False  # it goes on without its ranks, and would look for another monitor
        return have_all_ended(job) or (job.was_ended and now > job.closed_at + OUTLIVED)

    async def _find_reason_to_end(self, now: float) -> None:
        """Look for a reason to end, in the order in which reasons count."""
        job = self.job
        ended = find_job_end(job)
        if ended == "done" and job.verdict is not None:
            # Of a rank that stood still and was told to end, its front may say so a moment later.
            await asyncio.sleep(GONE_TOGETHER)
            ended = find_job_end(job)
        self._has_judged_end = ended is not None
        if ended is not None and ended != "done":
            self._review.forget_silence(ended)
        if ended is not None and may_have_failed(job, ended) and await was_started_again(job):
            await self._some_left("crash", is_known=True)
        elif ended == "done":
            if job.verdict is not None and self._review.was_put_to_an_end():
                return
            if job.verdict is not None:
                reopen_job(job)  # it has got on since the last look
            await close_job(job, self.server, "done", Snapshot(map(make_rank_facts, job.members)))
        elif ended in ("crash", "left", "interrupted"):
            await self._some_left(ended)
        elif job.verdict is not None and job.runs_script:
            if self._interruptions.is_launcher_gone():
                self._interruptions.go_on_without_launcher()
            if not await self._judge_again(now):
                await self._review.take_back(now)  # a hang that is interrupted stays what it was
        elif self._interruptions.are_there():
            await self._last_look("interrupted")
        elif job.verdict is not None:
            if not await self._judge_again(now):
                await self._review.take_back(now)
        elif job.settings["past"] and self._are_past(job.settings["past"], now):
            await self._end_past(job.settings["past"])
        elif job.settings["limit"] and now > job.started + job.settings["limit"]:
            await self._last_look("limit")
        elif not self._paused:
            await self._clocks(now)

    async def _judge_again(self, now: float) -> bool:
        """Judge once more what stood still and was not proved to hang: once a deadline is over, and
        what limits its wait, or once a proof has come; return whether that is so.
        """
        review, job = self._review, self.job
        if self._paused or not review.is_silent():
            return False
        over = review.find_limit(now)
        if over is None:
            return await review.look_for_proof(now)
        review.void_verdict()
        for member in job.members:
            member.look_again_at = 0.0
        await (self._last_look("limit") if over == "limit" else self._clocks(now))
        return True

    # ---- the clocks --------------------------------------------------------------------------

    async def _clocks(self, now: float) -> None:
        job = self.job
        if job.is_quiet:
            has_stopped = self._training.has_stopped(now)
            if has_stopped and self._is_paused():
                self._training.pulse.begin_anew(now)
            elif has_stopped:
                await self._training.look(self._inquire(), now)
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
            from .inspection import take_series

            # By one look alone who is still at work for its own start would pass for stuck.
            inspection = await take_series(job)
            never_came = await absent
            came = {facts.rank for facts in never_came} & job.members.by_rank.keys()
            if not self._is_paused() and not came and not find_job_end(job):
                seen = inspection.snapshot()
                await close_job(job, self.server, "late", seen.update([*seen.ranks, *never_came]))

    def _inquire(self) -> Inquiry:
        from .inquiry import Inquiry

        self._inquiry = self._inquiry or Inquiry(
            self.job,
            self.server,
            lambda: self._is_held() or self._training.goes_on(),
        )
        return self._inquiry

    def _are_past(self, name: str, now: float) -> bool:
        """Return whether every rank is past what --past names: a step, a phase, or so many training
        steps.
        """
        if name.isdecimal():
            return self._training.are_past(int(name), now)
        return are_ranks_past(self.job.members, name)

    async def _end_past(self, name: str) -> None:
        """Every rank is past what the run was to show: what comes after it is not waited for."""
        name = f"training step {name}" if name.isdecimal() else name
        self.job.notes.append(f"ended on purpose: every rank was past {name}")
        seen = Snapshot(map(make_rank_facts, self.job.members))
        await close_job(self.job, self.server, "past", seen)

    # ---- ends --------------------------------------------------------------------------------

    async def _some_left(self, ended: Ended, is_known: bool = False) -> None:
        """Judge a job that ranks have left; `is_known`: more than their ends tells how it ended."""
        if self.job.verdict is not None:
            return
        await asyncio.sleep(GONE_TOGETHER if ended == "left" else 0.1)
        ended = ended if is_known else find_job_end(self.job) or ended
        unknown = any(m.left and m.status is None for m in self.job.members)
        if ended == "left" and unknown and self._interruptions.are_there():
            ended = "crash"  # a launcher signals the others only when one has failed
        if ended == "done":
            return
        from ..collect.looks import PAUSE
        from .inspection import LAST_LOOK, Inspection

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
        return lately and free and not self._interruptions.are_there()

    async def _last_look(self, ended: Ended) -> None:
        from .inspection import LAST_LOOK, Inspection, take_series

        if ended == "limit":
            inspection = await take_series(self.job)
            settled = inspection.settled()
            ended = "limit" if settled.moving | settled.busy else "late"
        else:
            inspection = Inspection(self.job)
            await inspection.look(limit=LAST_LOOK, judging=ended != "interrupted")
        await close_job(self.job, self.server, ended, inspection.snapshot())

    # ---- samples -----------------------------------------------------------------------------

    def _sample(self) -> None:
        """Read counters cheaply: their standing still asks for looks."""
        job = self.job
        job.family.refresh()
        ended = job.ended_children = job.ended_children or EndedChildren(reads_logs=False)
        below = {m.rank: job.family.children(m.pid) for m in job.members if not m.left}
        ended.note({pid for pids in below.values() for pid in pids}, time.monotonic())
        for member in job.members:
            if member.left or member.quiet:
                continue
            if set(read_status(member.pid).signals_pending) & set(INTERRUPTING):
                self._interruptions.note_pending_signal()
            others = ended.select_others(below.get(member.rank, ()))
            pids = leave_out_services([member.pid, *others])
            stillness = self._stillness.setdefault(member.rank, Stillness())
            member.stirred_at = max(member.stirred_at, stillness.stirred_at(pids))
