"""Ends a job that has its verdict: its launcher where that would start it again, its ranks, and all
that belongs to them.
"""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING

from ..base.outcomes import CUT_SHORT
from .clocks import LEAVING_LIMIT
from .ending import signal_process
from .monitor_process import call_in_thread
from .rank_exits import have_all_ended

if TYPE_CHECKING:
    from ..base.rank_facts import Ended
    from ..base.verdict_facts import Verdict
    from .job import Job

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
