"""Whether a job waits in Slurm's queue: its checkpoint 0 starts when its allocation does."""

from __future__ import annotations

import os
from collections.abc import Iterable

from .aside import aside, run, within
from .command import words_of
from .programs import executable

QUEUE_LIMIT = 5.0  # seconds for squeue to answer
_QUEUING = ("srun", "salloc", "sbatch")


async def is_queued(pids: Iterable[int]) -> bool:
    """Return whether one of these processes waits for Slurm, and this user has a job in its queue.

    `squeue --me --states=PENDING`, as in its manual page; False where it is missing or does not
    answer in time.
    """
    squeue = executable("squeue")
    if squeue is None or not any(map(_may_queue, pids)):
        return False
    command = [squeue, "--me", "--noheader", "--states=PENDING", "--format=%i"]
    try:
        ran = await aside(run, command, QUEUE_LIMIT, limit=QUEUE_LIMIT + 0.3, key="squeue")
    except (OSError, TimeoutError):
        return False
    return bool(ran.out.strip())


def _may_queue(pid: int) -> bool:
    """Return whether a process is one of Slurm's programs, or a script that is called like one."""
    try:
        words = within(0.2, words_of, pid)[:3]
    except TimeoutError:
        return False
    return any(os.path.basename(word) in _QUEUING for word in words)
