"""End a job's family: every signal of ours is sent here. And the end of a job that has its verdict:
its launcher where that would start it again, its ranks, and all else.

The family is the process tree as seen so far, the sessions that ranks lead, and every process of
this user whose environment carries the job's mark: wandb-core has a session of its own, and a
child whose parent is gone belongs to init.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import time
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from ..base.outcomes import CUT_SHORT
from ..base.place import JOB_VARIABLE
from ..base.proc import list_pids, read_stat
from ..evidence.process import family, marked, open_life, started
from .clocks import LEAVING_LIMIT
from .monitor_process import call_in_thread
from .rank_exits import have_all_ended

if TYPE_CHECKING:
    from ..base.rank_facts import Ended
    from ..base.verdict_facts import Verdict
    from .job import Job


class ProcessFamily:
    """The processes of a job on this node: ranks, and what descended from them.

    Each is known by its pid and the time at which it started: a pid is used again.
    """

    def __init__(self, job: str, variable: str = JOB_VARIABLE) -> None:
        """`job` is the mark that all of them have in their environment, as `variable`."""
        self._job, self._variable = job, variable
        self._seen: dict[int, tuple[int, int]] = {}  # pid: (start in ticks, pid of its rank)
        self._ranks: dict[int, int] = {}  # pid: start in ticks
        self._there: dict[int, int] = {}  # pid of a rank: when it was seen last, in ticks
        self.spared: set[int] = set()  # marked as well, and not to be ended: monitors

    def add_rank(self, pid: int, ticks: int | None = None) -> None:
        """Add a rank: whatever descends from it belongs to the family. It is the process that has
        `pid` now; with `ticks`, the one that began then, and none if that is gone.
        """
        now = started(pid)
        if now is not None and ticks in (None, now):
            self._ranks[pid] = now
            self._add(pid, pid)

    def refresh(self) -> None:
        """Take in the descendants that exist now."""
        for pid, rank in family(self._ranks_that_are_there()).items():
            self._add(pid, rank)

    def children(self, rank_pid: int) -> list[int]:
        """Return the living descendants of a rank, by pid."""
        return [p for p in self.living() if self._seen[p][1] == rank_pid and p != rank_pid]

    def descendants(self, rank_pid: int) -> list[int]:
        """Return the descendants of a rank, those included that died and were not waited for."""
        return sorted(
            pid
            for pid, (ticks, rank) in list(self._seen.items())
            if rank == rank_pid and pid != rank_pid and started(pid) == ticks
        )

    def living(self) -> list[int]:
        """Return the pids of the family that are still there."""
        return sorted(p for p, (ticks, _) in list(self._seen.items()) if _is_running(p, ticks))

    def search(self) -> None:
        """Look through all processes for strays: by the mark, and by the sessions of ranks."""
        for pid in marked(self._variable, self._job):
            if pid not in self._seen and pid != os.getpid() and pid not in self.spared:
                self._add(pid, 0)
        there = self._ranks_that_are_there()
        for pid in set(list_pids()) - set(self._seen) - {os.getpid()}:
            with contextlib.suppress(OSError):
                leader = os.getsid(pid)
                if leader in there or (leader in self._ranks and self._is_older(pid, leader)):
                    self._add(pid, 0)

    def _ranks_that_are_there(self) -> set[int]:
        """Return the ranks that have their pids still, as zombies or not."""
        found = {pid for pid, ticks in self._ranks.items() if started(pid) == ticks}
        now = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
        self._there.update(dict.fromkeys(found, now))
        return found

    def _is_older(self, pid: int, leader: int) -> bool:
        """Return whether a process began while the rank `leader` was there: it may have its session
        from that one; from a later process of the same pid if it began later.
        """
        began = started(pid)
        return began is not None and self._ranks[leader] <= began <= self._there.get(leader, 0)

    def end(self, numbers: Iterable[signal.Signals] = (signal.SIGKILL,)) -> None:
        """Signal the whole family, all at once."""
        for pid in self.living():
            for number in numbers:
                signal_process(pid, self._seen[pid][0], number)

    def end_ranks(self, ranks: Collection[int]) -> None:
        """SIGKILL these ranks, by pid, and what descended from them."""
        for pid in self.living():
            ticks, rank = self._seen[pid]
            if rank in ranks:
                signal_process(pid, ticks, signal.SIGKILL)

    def end_for_good(self, limit: float = 2.0) -> list[int]:
        """SIGKILL the family until none is left; return those that outlive `limit` seconds (a
        process in the kernel, state D, dies only when it comes back).
        """
        until = time.monotonic() + limit
        while True:
            self.refresh()
            self.search()
            self.end()
            left = self.living()
            if not left or time.monotonic() > until:
                return left
            time.sleep(0.02)

    def _add(self, pid: int, rank: int) -> None:
        ticks = started(pid)
        if ticks is not None and (pid not in self._seen or self._seen[pid][0] != ticks):
            self._seen[pid] = (ticks, rank)


def signal_process(pid: int, ticks: int, number: signal.Signals) -> bool:
    """Send a signal to the process that had `pid` at `ticks`, and to no later one of that pid.

    Returns whether it was sent.

    By its pidfd, which stands for that process alone. Where the kernel gives none or does not take
    it (seccomp profiles, Linux before 5.3), by its pid right after its start time was checked: a
    pid is used again only after all others were, so not in between.
    """
    life = open_life(pid, ticks)
    try:
        if life.has_ended():
            return False
        if life.descriptor is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(life.descriptor, number)
                return True
        if started(pid) != ticks:
            return False
        os.kill(pid, number)
        return True
    except OSError:
        return False
    finally:
        life.close()


def resume_process(pid: int) -> None:
    """Let a process go on that a look had stopped and could not let go on itself."""
    ticks = started(pid)
    if ticks is not None:
        signal_process(pid, ticks, signal.SIGCONT)


def has_ended(descriptor: int) -> bool:
    """Return whether the process behind a pidfd has ended."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def find_monitors(variable: str, mark: str) -> set[int]:
    """Return the pids of the monitors of a job, which may not have said a word yet."""
    found = set()
    for pid in marked(variable, mark):
        now = read_stat(pid)
        if now is None or now.state == "D":  # to read its command line might take for ever
            continue
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read(4096).split(b"\0")
            if words[4:5] == [b"monitor"]:  # python -I -S FOLDER monitor {...}
                found.add(pid)
    return found


def is_alive(pid: int) -> bool:
    """Return whether a process is there and has not ended."""
    life = open_life(pid)
    try:
        return not life.has_ended()
    finally:
        life.close()


def _is_running(pid: int, ticks: int) -> bool:
    found = read_stat(pid)
    return found is not None and found.started == ticks and found.state not in "ZX"


LAUNCHER_LIMIT = 5.0  # seconds for a launcher to end the others after a crash
STRAY_LIMIT = 5.0  # seconds for what a healthy job leaves behind to end by itself


async def end_job(job: Job, verdict: Verdict, ended: Ended) -> None:
    """End the ranks and all that belongs to them, and account for what is left."""
    if ended == "done":
        await _wait_for_ranks(job, LEAVING_LIMIT)
        await _wait_until_gone(job, STRAY_LIMIT)
    elif verdict.outcome == "crash":
        await _wait_until_gone(job, LAUNCHER_LIMIT)
    was_cut_short = verdict.outcome in CUT_SHORT or ended == "past"
    starts_again = was_cut_short and any(m.max_restarts > m.attempt for m in job.members)
    # Before its ranks: an agent that sees them end first starts them once more.
    ticks = _tell_launcher_to_end(job) if starts_again else None
    left = await call_in_thread(job.family.end_for_good)
    if left:
        job.say(f"Still there, in the kernel (state D): {', '.join(map(str, left))}")
    if ticks is not None:
        await _end_launcher(job, ticks)


async def _wait_for_ranks(job: Job, limit: float) -> None:
    """Wait for the interpreters of ranks that have nothing more to do to end."""
    until = time.monotonic() + limit
    while time.monotonic() < until and not have_all_ended(job):
        await asyncio.sleep(0.02)


async def _wait_until_gone(job: Job, limit: float) -> None:
    until = time.monotonic() + limit
    while time.monotonic() < until:
        job.family.refresh()
        if not job.family.living():
            return
        await asyncio.sleep(0.02)


def _tell_launcher_to_end(job: Job) -> int | None:
    """Send SIGTERM. Return when the launcher started, in ticks; None where there is none left."""
    from ..evidence.process import started

    pid = int(job.place["launcher_pid"])
    ticks = started(pid)
    if ticks is None or not signal_process(pid, ticks, signal.SIGTERM):
        return None
    return ticks


async def _end_launcher(job: Job, ticks: int) -> None:
    """See to it that an agent that was told to end does."""
    from ..evidence.process import started

    pid = int(job.place["launcher_pid"])
    until = time.monotonic() + 3.0
    while started(pid) == ticks:
        if time.monotonic() > until:
            signal_process(pid, ticks, signal.SIGKILL)
            return
        await asyncio.sleep(0.05)
