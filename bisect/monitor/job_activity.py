"""Whether the job runs: cheap samples of each rank's family, the steps of training that ranks leave
in memory, and whether something keeps the whole job from running.

Samples decide nothing; looks are taken only where nothing stirs. A burst of a helper (W&B's core
samples the machine) is no sign of life, so what counts is the average over some seconds; what a
look shows decides.

A whole job is suspended by a person's Ctrl-Z, by a batch system, with a paused container, or
with the machine itself. Then no clock counts. One rank that is stopped while the others run is
something else: that is a cause of a hang.

After the start no rank reports any more, and none is looked at: a pause of an evaluation or a
checkpoint may be long. Only where no rank has done a step for TIMES as long as ever before is it
time for a look; where that shows work, for a longer pause. A search for what avoids a hang that
came late asks for more: whether ranks are past the step at which it came.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..base.facts import Sample
from ..base.launchers import find_launcher
from ..base.proc import read_stat
from ..evidence.kernel import find_frozen_group
from ..evidence.movement import compare_samples
from ..evidence.process import find_polling_threads, sample

if TYPE_CHECKING:
    from ..evidence.ring_reader import Pulse
    from .job import Job


WINDOW = 5.0  # seconds
SEARCH_EVERY = 10.0  # seconds between two searches for a process's threads that only poll


class Stillness:
    """The recent samples of one rank and its descendants."""

    def __init__(self) -> None:
        """No samples yet."""
        self._samples: dict[int, deque[Sample]] = {}
        self._polling: dict[int, tuple[int, ...]] = {}  # threads that only poll, by pid
        self._searched_at: dict[int, float] = {}
        self._last_stir = 0.0

    def stirred_at(self, pids: Iterable[int]) -> float:
        """Sample `pids`; return when one of them last stirred (monotonic), 0.0 for not lately."""
        lately = False
        for pid in pids:
            now = sample(pid, polling=self._polling.get(pid, ()))
            if now is None:
                self._samples.pop(pid, None)
                continue
            kept = self._samples.setdefault(pid, deque())
            if kept and compare_samples(kept[-1], now):
                self._last_stir = now.at
                self._find_polling(pid, now.at)
            while len(kept) > 1 and now.at - kept[1].at >= WINDOW:
                kept.popleft()
            if kept and compare_samples(kept[0], now):
                lately = True
            kept.append(now)
        return self._last_stir if lately else 0.0

    def _find_polling(self, pid: int, now: float) -> None:
        """Search a process that stirs for threads that only poll: later samples leave them out."""
        if now >= self._searched_at.get(pid, 0.0) + SEARCH_EVERY:
            self._searched_at[pid] = now
            self._polling[pid] = find_polling_threads(pid)


OWN_PAUSE = 5.0  # seconds that our own loop may be late before we were not running ourselves
# Seconds that the machine may seem to have slept: two clocks are read in a row.
_MACHINE_PAUSE = 1.0


class Suspension:
    """What is known of it for one job."""

    def __init__(self, job: Job) -> None:
        """Nothing is read before it is asked for."""
        self._job = job
        self._slept = _seconds_slept()
        self._is_frozen = False  # when it was asked for last

    def we_were_away(self, late: float) -> bool:
        """Return whether we were not running since the last time: our loop is `late` by so many
        seconds, or the machine slept, which the monotonic clock does not count.
        """
        before, self._slept = self._slept, _seconds_slept()
        return late > OWN_PAUSE or self._slept - before > _MACHINE_PAUSE

    def why(self) -> str:
        """Return in words what keeps the whole job from running, "" for nothing."""
        job = self._job
        ranks = [m.pid for m in job.members if not m.has_left]
        launcher = int(job.place["launcher_pid"])
        above = [*job.outer.pids(), *([launcher] if launcher > 1 else [])]
        states = {pid: found.state for pid in (*ranks, *above) if (found := read_stat(pid))}
        tells = not find_launcher(job.place["launcher"]).stops_ranks_alone
        return explain_suspension(states, ranks, above, tells) or (
            self.why_frozen() if self._is_frozen else ""
        )

    def why_frozen(self) -> str:
        """Return the same of control groups, for which more must be read: "" if a rank's is not
        frozen.
        """
        ranks = [m.pid for m in self._job.members if not m.has_left]
        groups = (find_frozen_group(pid) for pid in ranks)
        first = next(groups, "")
        self._is_frozen = bool(first) and all(groups)
        return f"the control group {first} is frozen" if self._is_frozen else ""


def explain_suspension(
    states: Mapping[int, str], ranks: Collection[int], above: Collection[int], tells: bool = False
) -> str:
    """Return in words why a job is suspended, by the `states` of processes: those `above` its ranks
    are its launcher and `hangbisect run`. "" if it is not. Pure.

    `tells`: the launcher is stopped with its ranks, so that ranks alone tell nothing.
    """
    stopped = [pid for pid in above if states.get(pid) == "T"]
    if stopped:
        return f"process {stopped[0]}, which started the ranks, is stopped"
    if not tells and len(ranks) > 1 and all(states.get(pid) == "T" for pid in ranks):
        return "all ranks are stopped"
    return ""


def _seconds_slept() -> float:
    """Return for how many seconds the machine has slept since it was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


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
        told = [one for one in known if one is not None]
        at = max((one.at for one in told), default=0.0)
        self.longest = max((one.longest for one in told), default=0.0)
        self.steps = max((one.steps for one in told), default=0)
        if at <= self.at:
            return False
        self.at = self._since = at
        self.patience = max(self._least, TIMES * self.longest)
        return True

    def has_stopped(self, now: float) -> bool:
        """Return whether no step has come for much longer than ever before."""
        return self._is_known and now > self._since + self.patience

    def begin_anew(self, now: float) -> None:
        """The job was kept from running until `now`."""
        self._since = max(self._since, now)

    def wait_longer(self) -> None:
        """It was at work: wait twice as long for a step."""
        self.patience *= 2


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
