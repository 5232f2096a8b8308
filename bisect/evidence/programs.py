"""Finds the programs of others that the watch runs (py-spy, pystack, squeue), and asks squeue
whether a job waits in Slurm's queue: its checkpoint 0 starts when its allocation does.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Iterable

from ..base.deadline import aside, run, within
from ..base.launchers import SRUN
from .process import words_of


@functools.cache
def find_program(name: str = "py-spy") -> str | None:
    """Return the path of a program: next to this interpreter, in its scripts, or on the PATH."""
    beside = shutil.which(name, path=os.path.dirname(sys.executable))
    if beside:
        return beside
    import sysconfig

    return shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)


QUEUE_LIMIT = 5.0  # seconds for squeue to answer


async def is_queued(pids: Iterable[int]) -> bool:
    """Return whether one of these processes waits for Slurm, and this user has a job in its queue.

    `squeue --me --states=PENDING`, as in its manual page; False where it is missing or does not
    answer in time.
    """
    squeue = find_program("squeue")
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
    return any(os.path.basename(word) in SRUN.clients for word in words)
