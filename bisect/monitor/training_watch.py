"""The steps of training that ranks leave in memory: whether they still come, and how far ranks are.

After the start no rank reports any more, and none is looked at: a pause of an evaluation or a
checkpoint may be long. Only where no rank has done a step for TIMES as long as ever before is it
time for a look; where that shows work, for a longer pause. A search for what avoids a hang that
came late asks for more: whether ranks are past the step at which it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..base.rank_state import RankState
from ..base.words import format_seconds
from .clocks import Overdue

if TYPE_CHECKING:
    from ..evidence.ring_reader import Pulse
    from .inquiry import Inquiry
    from .job import Job

TIMES = 10.0  # times the longest pause so far
PAST_STEPS = 5  # steps beyond the one in question, after which ranks are past it ...
PAST_SECONDS = 60.0  # ... or one step more, and so long


class TrainingPulse:
    """The last step of any rank, and how long the next one may take."""

    def __init__(self, least: float) -> None:
        """A pause of up to `least` seconds is never too long."""
        self.at = 0.0  # when the last step ended (monotonic)
        self._since = 0.0  # the same, or when the job could go on
        self.longest = 0.0  # seconds
        self.steps = 0  # of the rank that has done most
        self.patience = 0.0  # seconds
        self._least = least
        self._is_known = False

    def hear(self, pulses: Iterable[Pulse | None]) -> bool:
        """Take the pulses of all ranks; return whether a step has come since the last time."""
        known = list(pulses)
        self._is_known = bool(known) and all(one and one.longest > 0.0 for one in known)
        pauses = [one for one in known if one is not None]
        at = max((one.at for one in pauses), default=0.0)
        self.longest = max((one.longest for one in pauses), default=0.0)
        self.steps = max((one.steps for one in pauses), default=0)
        if at <= self.at:
            return False
        self.at = self._since = at
        self.patience = max(self._least, TIMES * self.longest)
        return True

    def has_stopped(self, now: float) -> bool:
        """Return whether no step has come for much longer than ever before."""
        return self._is_known and now > self._since + self.patience

    def has_paused(self, since: float, now: float) -> bool:
        """Return whether the time for a look is over, counted from `since` or from when the job
        could go on.
        """
        return now > max(since, self._since) + max(self._least, self.patience)

    def begin_anew(self, now: float) -> None:
        """The job was kept from running until `now`."""
        self._since = max(self._since, now)

    def wait_longer(self) -> None:
        """It was at work: wait twice as long for a step."""
        self.patience = 2 * max(self._least, self.patience)


class PastStep:
    """Whether all ranks are past a training step at which a job has hung before."""

    def __init__(self, step: int) -> None:
        """`step` counts those after the first ones, as Pulse.steps does."""
        self._step = step
        self._since: float | None = None  # when all were first seen beyond it (monotonic)

    def is_reached(self, done: Sequence[int | None], now: float) -> bool:
        """Take the steps that each rank has done, None for one of which nothing is known; return
        whether all are past it: by some steps, or by one where a step takes long.
        """
        known = [steps for steps in done if steps is not None]
        if not known or len(known) < len(done) or min(known) <= self._step:
            return False
        self._since = now if self._since is None else self._since
        return min(known) >= self._step + PAST_STEPS or now >= self._since + PAST_SECONDS


class TrainingWatch:
    """What the watch does about the training of one job."""

    def __init__(self, job: Job) -> None:
        """Nothing is read before it is asked for."""
        self.job = job
        self.pulse = TrainingPulse(job.limits.stall)
        self.has_verdict = False  # ranks were quiet, and have a verdict all the same
        self._held_since = 0.0  # they were found still, too early for a verdict (monotonic); 0: no
        self._is_looking = False  # at this moment, because no step has come
        self._has_come = False  # a step, while ranks were looked at
        self._past_step: PastStep | None = None
        self._quiet_since = 0.0  # of a server that is not ready: when all were (monotonic); 0: no

    def _living(self) -> list[RankState]:
        return [member for member in self.job.members if not member.left]

    def _read_pulses(self) -> bool:
        """Read the pulses of the ranks; return whether a step has come since the last time."""
        living = self._living()
        pulses = {member.rank: self.job.logs.read_pulse(member.rank) for member in living}
        for member in living:
            if (pulse := pulses[member.rank]) is not None and member.trained is not None:
                member.trained = pulse.steps
        return self.pulse.hear(pulses.values())

    def goes_on(self) -> bool:
        """Return whether what did not come has come while ranks are looked at: a training step, or
        that a server is ready.
        """
        if not self._is_looking and not self._held_since:
            return False
        if self._quiet_since and not self.job.outer.awaits_ready:  # the server is ready meanwhile
            self._has_come = True
        self._has_come = self._read_pulses() or self._has_come
        return self._has_come

    def has_stopped(self, now: float) -> bool:
        """Return whether no step has come for much longer than ever before, or a rank has ended and
        another one, of which no pause between two steps is known, is there still; of a server,
        whether its ranks have started long ago and it is not ready.
        """
        self._read_pulses()
        if self.job.outer.awaits_ready:
            self._quiet_since = self._quiet_since or now
            return self.pulse.has_paused(self._quiet_since, now)
        self._quiet_since = 0.0
        return self.pulse.has_stopped(now) or self._is_left_behind(now)

    def _is_left_behind(self, now: float) -> bool:
        """Return whether ranks are there, long after another one has ended, of whose training one
        step is all that was done: who trains no more may not end.
        """
        ended = [one.left_at for one in self.job.members if one.left and one.left_at is not None]
        if self.pulse.longest > 0.0 or not ended or not self._living():
            return False
        return self.pulse.has_paused(max(ended), now)

    async def look(self, inquiry: Inquiry, now: float) -> None:
        """Look at ranks of which no step comes; where they are at work, let them be, and say
        nothing. Where they stand still, and other nodes are to be heard first, they are watched on
        as before their first step: that joins the nodes, and counts for how long nothing moves.
        """
        job, pulse, living = self.job, self.pulse, self._living()
        for member in living:  # nobody has looked so far: they have stood still from now on
            member.forget_looks()
            member.quiet, member.moved_at, member.stirred_at = False, now, now
        self._is_looking, self._has_come = True, False
        since = now + job.limits.stall
        pause = format_seconds(now - (self._quiet_since or pulse.at))
        if job.outer.awaits_ready:
            why = f"All ranks started {pause} ago; the server is not ready"
        elif pulse.longest:
            why = f"No training step for {pause}; before, none took longer than "
            why += format_seconds(pulse.longest)
        else:
            why = f"No training step for {pause}; a rank has ended"
        try:
            await inquiry.look_until_clear(
                [Overdue(member.rank, "still", since) for member in living], why
            )
        finally:
            self._is_looking = False
            self.has_verdict = job.verdict is not None
            is_held = job.held_back is not None and job.held_back.at > now
            self._held_since = job.held_back.at if is_held and job.held_back else 0.0
            if job.verdict is None and not is_held:
                pulse.wait_longer()
                for member in living:
                    member.quiet = True

    def hear_what_comes(self) -> None:
        """Hear, at each turn, what comes of ranks that had been quiet and were found still."""
        if self._held_since:
            self._hear_who_is_held_back()
        elif self.has_verdict:
            self._hear_after_verdict()

    def _hear_who_is_held_back(self) -> None:
        """A step or other movement makes them quiet again, as before they were looked at."""
        living, has_come = self._living(), self._read_pulses() or self._has_come
        has_moved = any(member.moved_at > self._held_since for member in living)
        if self.job.verdict is not None:
            self.has_verdict, self._held_since = True, 0.0
        elif has_come or has_moved:
            self._held_since, self._has_come = 0.0, False
            if not has_come:
                self.pulse.wait_longer()
            for member in living:
                member.quiet = True

    def _hear_after_verdict(self) -> None:
        """A step that comes is movement; ranks whose verdict was taken back are quiet again."""
        pulse, living = self.pulse, self._living()
        has_come = self._read_pulses()
        for member in living if has_come else ():
            member.moved_at = pulse.at
        if self.job.verdict is None:
            self.has_verdict = False
            if not has_come:
                pulse.wait_longer()
            for member in living:
                member.quiet = True

    def are_past(self, step: int, now: float) -> bool:
        """Return whether every rank is past so many training steps after the first ones."""
        if self._past_step is None:
            self._past_step = PastStep(step)
        if not self.job.members.are_here or not self.job.is_quiet:
            return False
        self._read_pulses()
        return self._past_step.is_reached([one.trained for one in self._living()], now)
