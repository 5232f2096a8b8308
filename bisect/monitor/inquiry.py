"""What the watch does when clocks run out: look until it is clear which ranks hang, move or wait;
then act.

Servers above the ranks are known here: an API process waits for requests, and its workers for
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from ..base import events
from ..base.deadline import call_with_limit
from ..base.identity import RankId
from ..base.launcher_env import Ancestor
from ..base.launchers import DIALECTS
from ..base.proc import walk_up
from ..base.process_facts import Frame, Look
from ..base.rank_facts import Ended
from ..base.rank_state import RankState
from ..base.words import begin_sentence, format_ranks, format_seconds
from ..collect.looks import (
    MOST_NATIVE_RANKS,
    PAUSE,
    RankClasses,
    may_pause,
    order_unlike,
    waits_for_another,
)
from ..diagnosis.compilation import describe_who_waits, find_compilations
from ..diagnosis.process.spin_waits import list_python_frames
from ..diagnosis.proof_of_hang import (
    describe_listening,
    describe_waiting_for_work,
    find_kept_outside,
    have_all_asked,
)
from ..evidence.look import Target, take_looks
from ..evidence.machine import read_machine
from ..evidence.process import family, runs_python, words_of
from ..report.terminal import slow_line
from . import clocks
from .finalize import close_job
from .inspection import SPAN, Inspection
from .judgement import find_later_proof
from .missing_ranks import is_of_group_above, only_starts_ranks
from .rank_exits import find_job_end, find_present

if TYPE_CHECKING:
    from ..diagnosis.snapshot import Snapshot
    from .job import Job
    from .server import Server


_Position = tuple[int, int, str | None, int, int]  # what changes when a member gets on
SLOW_LINE_EVERY = 60.0  # seconds
_ASKS_PROCESSES = 2.0  # seconds, for the variables of what a member has started
_MOST_PAUSES = 3  # of what burns CPU in one step, to hear whether it waits for a GPU
_DEEPEST = 8  # processes above a rank that are looked at


async def find_server_above(job: Job, seen: Snapshot) -> str:
    """Return in words which process above the ranks waits for requests, "" if none does, or a rank
    is kept by what is outside of all of them while others wait for it: it has a request.

    Launchers listen as well: for what they started, and not for work.
    """
    store_ports = {m.environment.get("MASTER_PORT", "") for m in job.members}
    pids = _find_programs_above([m.pid for m in job.members], set(job.outer.pids()))
    if find_kept_outside(seen, {*pids, *family(pids)}) is not None:
        return ""
    looks = await take_looks([Target(pid, "rank") for pid in pids])
    if have_all_asked(seen, looks):
        return ""
    return describe_listening(looks, next(iter(store_ports), "")) if len(store_ports) <= 1 else ""


def _find_programs_above(ranks: list[int], ends: set[int]) -> list[int]:
    """Return the Python programs above ranks, up to one of `ends`, that are no launchers."""
    found: dict[int, None] = {}
    for rank in ranks:
        for pid in takewhile(lambda pid: pid not in ends, walk_up(rank, _DEEPEST)):
            if pid not in ranks and runs_python(pid) and not _is_launcher(pid):
                found[pid] = None
    return list(found)


def _is_launcher(pid: int) -> bool:
    return Ancestor({}, tuple(words_of(pid))).launcher is not None


class Inquiry:
    """What the watch does about ranks whose clocks ran out."""

    def __init__(self, job: Job, server: Server, interrupted: Callable[[], bool]) -> None:
        """`interrupted` is asked between looks: an interrupted job needs none of this."""
        self.job = job
        self.server = server
        self._interrupted = interrupted
        self._said: set[str] = set()
        # What was paused to hear whether it waits for a GPU: the places in each step.
        self._asked: dict[tuple[RankId, _Position], set[tuple[Frame, ...]]] = {}

    async def look_until_clear(self, due: Sequence[clocks.Overdue], why: str = "") -> None:
        """Look until it is clear which of the ranks that are due hangs, if any.

        With `why` nothing is said while they move; it is why they were looked at.
        """
        job = self.job
        steps = {d.rank: _position_of(job.members.by_rank[d.rank]) for d in due}
        for one in due if not why else ():
            self._announce(one)
        inspection, again = Inspection(job), False
        while True:
            await asyncio.gather(inspection.look(), self._look_at_machine(inspection))
            if find_job_end(job) or self._interrupted():
                return
            due = [d for d in due if _position_of(job.members.by_rank[d.rank]) == steps[d.rank]]
            if due and self._has_one_left(inspection):  # whoever waited for it goes on, or fails
                inspection = Inspection(job)
                continue
            ranks = {d.rank for d in due}
            settled = inspection.settled()
            if not due or self._is_clear(inspection, settled, sorted(ranks)):
                if again or not settled.hung & ranks or not settled.moving & ranks:
                    break
                # One hangs and another has just moved: it may be on its way into the same hang.
                inspection, again = Inspection(job), True
            await asyncio.sleep(PAUSE)
        if due:
            await self._decide(inspection, settled, due, why)

    def _has_one_left(self, inspection: Inspection) -> bool:
        """Return whether a rank has ended, or its connection was closed, since the first look: then
        looks and facts are of different moments.
        """
        self.server.ask_who_ended()
        return bool(inspection.present - find_present(self.job))

    async def _look_at_machine(self, inspection: Inspection) -> None:
        if inspection.count == 0:
            self.job.machine = await read_machine(since=self.job.started, is_monitor=True)

    def _announce(self, due: clocks.Overdue) -> None:
        """Say once a step that its clock ran out, and that we look."""
        job, member = self.job, self.job.members.by_rank[due.rank]
        job.note(member, events.Overdue(clock=due.clock, since=due.since))
        if member.announced_late == _position_of(member) or due.clock == "known":
            return
        member.announced_late = _position_of(member)
        where = member.phase or f"checkpoint {member.step}"
        if member.inside is not None:
            where = member.inside.words
        what = "is late" if due.clock == "late" else "stands still"
        job.say(f"Rank {member.rank} {what} at {where}: looking")

    def _is_clear(self, inspection: Inspection, settled: RankClasses, ranks: Sequence[int]) -> bool:
        """Return whether the looks suffice to say of each rank whether it moves or hangs."""
        if inspection.count < 2:
            return False
        if all(rank in settled.moving for rank in ranks):
            return True
        return inspection.span >= SPAN and all(
            rank not in settled.hung or self._has_been_quiet(rank, settled) for rank in ranks
        )

    def _has_been_quiet(self, rank: int, settled: RankClasses) -> bool:
        """Return whether all that a verdict on `rank` would rest on has been still long enough.

        Where nobody moves that is every rank: one that still has time may be the one that the
        others wait for, and may just be pausing.
        """
        now = time.monotonic()
        concerned = self._find_concerned(rank, settled)
        return all(now - m.moved_at >= self._patience(m) for m in concerned)

    def _find_concerned(self, rank: int, settled: RankClasses) -> list[RankState]:
        somebody_moves = settled.moving | settled.busy
        return [
            m
            for m in self.job.members
            if m.rank == rank or not (m.left or m.waits_for_us or somebody_moves)
        ]

    def _patience(self, member: RankState) -> float:
        """Return for how long nothing of a member may have moved before it is called hung."""
        members, limits = self.job.members, self.job.limits
        known = limits.known
        if known and known.is_place_of(members, member) and known.is_shown_by(member.looks):
            return known.still
        allowed = clocks.find_deadline(members, member, limits)
        return clocks.required_stillness(allowed, limits, member.longest_pause)

    async def _decide(
        self,
        inspection: Inspection,
        settled: RankClasses,
        due: Sequence[clocks.Overdue],
        why: str,
    ) -> None:
        """Close the job if a due rank hangs; else set when each due rank is looked at again."""
        job, now = self.job, time.monotonic()
        ended: Ended | None = None
        first = due[0]
        if not why:
            settled = await self._tell_from_work(inspection, settled)
        for one in due:
            member = job.members.by_rank[one.rank]
            allowed = clocks.find_deadline(job.members, member, job.limits)
            if one.rank in settled.hung:
                if self._opens_barrier(inspection, member):
                    return
                if one.clock == "known" and not self._is_the_known_one(member):
                    member.look_again_at = now + clocks.AFTER_A_VERDICT
                    continue
                if await self._may_only_pause(inspection, settled, member):
                    continue
                ended, first = "late" if one.clock == "late" else "still", one
                break
            if one.rank in settled.moving:
                self._go_on(inspection, member, inspection.moved[one.rank], why)
            elif one.rank not in settled.busy:
                member.look_again_at = now + clocks.required_stillness(allowed, job.limits)
                self._say_who_compiles(inspection)
            elif why:
                continue  # it computes: a step is to come
            elif now < clocks.busy_until(job.members, member, job.limits):
                self._go_on(inspection, member, inspection.computing(member))
            else:
                ended, first = "busy", one
        inspection.remember_places()
        if ended and not await self._is_waiting_for_work(inspection):
            await self._close(inspection, ended, first, settled, why)

    async def _tell_from_work(self, inspection: Inspection, settled: RankClasses) -> RankClasses:
        """Return the ranks by what they do, where some that are late only burn CPU: native frames,
        or else their Python lines, tell who of them waits for a GPU, or in MPI for others. Only
        those that use one of these are paused for that, and each once in a place.
        """
        members, limits, now = self.job.members, self.job.limits, time.monotonic()
        busy = [m for m in members if m.rank in settled.busy]
        late = [m for m in busy if now > clocks.find_clock_end(members, m, limits)]
        new = {m.pid: m.looks[-1] for m in late if self._may_wait_by_spinning(m)}
        if not new:
            return settled
        chosen = order_unlike(new)[:MOST_NATIVE_RANKS]
        asked = [member for member in late if member.pid in chosen]
        for one in asked:
            self._asked.setdefault((one.rank, _position_of(one)), set()).add(_place_of(one))
        may = [] if self.job.cannot_look else [m.rank for m in asked if may_pause(m.looks)]
        await inspection.look(native=frozenset(may))
        await inspection.read_calls([member.rank for member in asked])
        return inspection.settled()

    def _may_wait_by_spinning(self, member: RankState) -> bool:
        """Return whether a member uses a GPU, or was started by a launcher of MPI, and was not
        asked yet in this place of its step.
        """
        asked = self._asked.get((member.rank, _position_of(member)), set())
        launcher = DIALECTS.get(str(self.job.place["launcher"]))
        of_mpi = launcher is not None and launcher.family == "MPI"
        uses = bool(member.looks and _place_of(member)) and (of_mpi or member.looks[-1].gpus)
        return bool(uses) and len(asked) < _MOST_PAUSES and _place_of(member) not in asked

    async def _close(
        self,
        inspection: Inspection,
        ended: Ended,
        first: clocks.Overdue,
        settled: RankClasses,
        why: str,
    ) -> None:
        """Take the last look, and close the job by it, unless it shows that a rank has got on, or
        has ended, or waits for one that moves: what was seen before says nothing of it then.
        """
        job = self.job
        member = job.members.by_rank[first.rank]
        named = [m for m in job.members if m is member or m.rank in settled.hung]
        positions = [_position_of(m) for m in named]
        spun = ended != "busy" and bool(inspection.spinning())
        looked_at = frozenset(m.rank for m in (*named, *self._list_spinners(settled)))
        await self._take_native_look(inspection, looked_at)
        if spun:
            await inspection.read_calls([member.rank for member in named])
        if find_job_end(job) or self._interrupted() or self._has_one_left(inspection):
            return
        if [_position_of(m) for m in named] != positions:
            return
        if moved := inspection.moved.get(first.rank, ""):
            self._go_on(inspection, member, moved, why)
            inspection.remember_places()
            return
        classes = inspection.settled()
        if first.rank in classes.waiting and classes.moving:  # whom it waits for may be on its way
            allowed = clocks.find_deadline(job.members, member, job.limits)
            still = clocks.required_stillness(allowed, job.limits)
            member.look_again_at = time.monotonic() + still
            inspection.remember_places()
            return
        if spun and first.rank in classes.busy:  # it is not at the GPU any more
            self._go_on(inspection, member, inspection.computing(member))
            inspection.remember_places()
            return
        if why:
            job.say(why)
        await close_job(job, self.server, ended, inspection.snapshot(), due=first)

    def _list_spinners(self, settled: RankClasses) -> list[RankState]:
        """Return those that burn CPU and are in time, and may wait for others all the same, as in
        MPI: as many as are looked at natively.
        """
        busy = (m for m in self.job.members if m.rank in settled.busy)
        return [m for m in busy if self._may_wait_by_spinning(m)][:MOST_NATIVE_RANKS]

    async def _may_only_pause(
        self, inspection: Inspection, settled: RankClasses, member: RankState
    ) -> bool:
        """Return whether a member that stands still, or one that it may wait for, is as silent as
        it was before in this step, and nothing proves a hang; have it looked at again later then.
        """
        job, now, waits = self.job, time.monotonic(), inspection.snapshot().waits
        pausing = next(
            (
                one
                for one in self._find_concerned(member.rank, settled)
                if now < clocks.pauses_until(job.members, one, job.limits)
                and not waits_for_another(waits.get(one.rank), one.rank)
                and not self._is_the_known_one(one)
            ),
            None,
        )
        if pausing is None or await find_later_proof(job, inspection.snapshot()):
            return False
        earlier = f"silences of up to {format_seconds(pausing.silences.longest)}"
        self._go_on(
            inspection,
            pausing,
            f"stands still, as before: {earlier} in this step ended by themselves",
        )
        member.look_again_at = pausing.look_again_at
        return True

    async def _is_waiting_for_work(self, inspection: Inspection) -> bool:
        """Return whether the ranks of a script of the user's own only wait for requests, or another
        monitor watches those that they wait for: ranks that the script has started, or the rank 0
        that has started them. Have them looked at again later then. A server that is not ready has
        no requests to wait for.
        """
        job = self.job
        if not job.runs_script or job.is_trial or job.outer.awaits_ready:
            return False
        if await self._only_starts_ranks() or await is_of_group_above(job):
            for member in job.members:
                member.look_again_at = time.monotonic() + job.limits.stall
            return True
        what = describe_waiting_for_work(inspection.facts()) or await find_server_above(
            job, inspection.snapshot()
        )
        if not what:
            return False
        for member in job.members:
            member.look_again_at = time.monotonic() + job.limits.stall
        if what not in self._said:
            self._said.add(what)
            job.say(f"It stands still and waits for work, as a server does: {what}")
        return True

    async def _only_starts_ranks(self) -> bool:
        with contextlib.suppress(TimeoutError):
            return await call_with_limit(only_starts_ranks, self.job, limit=_ASKS_PROCESSES)
        return False

    def _is_the_known_one(self, member: RankState) -> bool:
        known = self.job.limits.known
        return known is not None and known.is_shown_by(member.looks)

    def _go_on(self, inspection: Inspection, member: RankState, moved: str, why: str = "") -> None:
        """Late, but not hung: say so once a minute, and look again later."""
        job, now = self.job, time.monotonic()
        member.moving = moved
        if why:
            return
        allowed = clocks.find_deadline(job.members, member, job.limits) or job.limits.stall
        pause = min(job.limits.stall, max(2.0, allowed / 2))
        known = job.limits.known
        if known is not None and known.is_place_of(job.members, member):
            member.look_again_at = now + min(pause, known.still)
            return  # it need not be late
        member.look_again_at = now + pause
        self._say_slow(inspection, member, moved)

    def _say_slow(self, inspection: Inspection, member: RankState, moved: str) -> None:
        """Say what a slow rank does, once a minute; of one that compiles how far that is."""
        job, now = self.job, time.monotonic()
        if now - member.said_slow_at > SLOW_LINE_EVERY:
            member.said_slow_at = now
            ranks = inspection.facts()
            compilations = find_compilations(ranks)
            own = next((one for one in compilations if one.rank == member.rank), None)
            text = moved if own is None else own.text
            job.say(slow_line(job.table, ranks, member.rank, text, now))
            for line in () if own is None else describe_who_waits(ranks, compilations):
                job.say(begin_sentence(line))

    def _say_who_compiles(self, inspection: Inspection) -> None:
        """Say for which compilation a rank waits."""
        compiling = {one.rank for one in find_compilations(inspection.facts())}
        for member in self.job.members:
            if member.rank in compiling:
                self._say_slow(inspection, member, "")

    def _opens_barrier(self, inspection: Inspection, member: RankState) -> bool:
        """Open our barrier if the rank in question waits for one that it holds."""
        job = self.job
        held = [m.rank for m in job.members if m.held_at is not None]
        held_elsewhere = job.nodes is not None and bool(job.nodes.hosts_behind)
        wait = inspection.snapshot().waits[member.rank]
        if not (held or held_elsewhere) or wait is None:
            return False
        if not waits_for_another(wait, member.rank):
            return False
        what = wait.detail or wait.kind
        whom = format_ranks(held) if held else "ranks of other nodes"
        why = f"rank {member.rank} ({what}) waited for {whom} in our barrier"
        job.say(f"Barrier opened: {why}; going on without barriers")
        self.server.stop_holding(why)
        return True

    async def _take_native_look(self, inspection: Inspection, ranks: frozenset[RankId]) -> None:
        """Take the one look that pauses, last: whether anything moves has been judged."""
        if self.job.cannot_look:
            return
        before: dict[RankId, list[Look]] = {m.rank: list(m.looks) for m in self.job.members}
        native = frozenset(r for r in ranks if may_pause(before[r]))
        await inspection.look(native=native)


def _place_of(member: RankState) -> tuple[Frame, ...]:
    """Return the Python frames of a member that was looked at."""
    main = member.looks[-1].main
    return list_python_frames(main.frames) if main is not None else ()


def _position_of(member: RankState) -> _Position:
    """Return what changes when a member gets on."""
    return member.reached, member.step, member.phase, member.pulse, member.steps_told
