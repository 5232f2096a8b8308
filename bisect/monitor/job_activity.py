"""Whether the job runs: cheap samples of each rank's family, and whether something keeps the whole
job from running.

Samples decide nothing; looks are taken only where nothing stirs. A burst of a helper (W&B's core
samples the machine) is no sign of life, so what counts is the average over some seconds; what a
look shows decides.

A whole job is suspended by a person's Ctrl-Z, by a batch system, with a paused container, or
with the machine itself. Then no clock counts. One rank that is stopped while the others run is
something else: that is a cause of a hang.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..base.launchers import find_launcher
from ..base.proc import read_stat
from ..base.process_facts import Look, Sample
from ..base.process_roles import is_dask_worker
from ..evidence.dask_threads import list_threads_in_touch
from ..evidence.kernel import find_frozen_group
from ..evidence.movement import compare_samples
from ..evidence.process import find_polling_threads, sample, words_of

if TYPE_CHECKING:
    from .job import Job

WINDOW = 5.0  # seconds
_MOST_LOOKS = 5  # at a process for the names of its threads
SEARCH_EVERY = 10.0  # seconds between two searches for a process's threads that only poll


class Stillness:
    """The recent samples of one rank and its descendants."""

    def __init__(self) -> None:
        """No samples yet."""
        self._samples: dict[int, deque[Sample]] = {}
        self._polling: dict[int, tuple[int, ...]] = {}  # threads that only poll, by pid
        self._in_touch: dict[int, tuple[int, ...]] = {}  # those by which Dask's processes are so
        self._looked: dict[int, int] = {}  # how often each was looked at for these
        self._searched_at: dict[int, float] = {}
        self._last_stir = 0.0

    def stirred_at(self, pids: Iterable[int], pollers: Collection[int] = ()) -> float:
        """Sample `pids`; return when one of them last stirred (monotonic), 0.0 for not lately. What
        `pollers` read counts for nothing: the programs and libraries of what they start.
        """
        lately = False
        for pid in pids:
            polling = (*self._polling.get(pid, ()), *self._in_touch.get(pid, ()))
            now = sample(pid, polling=polling)
            if now is None:
                self._samples.pop(pid, None)
                continue
            now = replace(now, read=0, disk_read=0) if pid in pollers else now
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

    def wants_names_of_threads(self) -> bool:
        """Return whether processes of Dask's stir of which only a look can tell which threads are
        those that have them in touch: on a machine with much to do these use no little of a core.
        """
        workers = {pid for pid in self._samples if is_dask_worker(words_of(pid))}
        return any(self._looked.get(pid, 0) < _MOST_LOOKS for pid in workers - {*self._in_touch})

    def learn_threads(self, looks: Mapping[int, Sequence[Look]]) -> None:
        """Leave out of later samples what the `looks` at processes (by pid) name as threads that
        have those of Dask in touch.
        """
        for pid, seen in looks.items():
            found = list_threads_in_touch(seen)
            self._looked[pid] = self._looked.get(pid, 0) + 1
            is_read = any(look.threads for look in seen)  # in time, on a machine with much to do
            if found or (is_read and is_dask_worker(seen[-1].command)):
                self._in_touch[pid] = found

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
