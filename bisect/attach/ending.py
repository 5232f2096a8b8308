"""End a job that was looked at: its ranks, what they started, and what started them."""

from __future__ import annotations

import os

from ..monitor.ending import Family
from .jobs import Job

_UNMARKED = "HANGBISECT_ATTACHED"  # no process of a job that we only looked at has a mark


def end(job: Job) -> tuple[list[int], list[int]]:
    """End the family, all at once; return who was ended, and who is still there, in the kernel. The
    kernel of a notebook is spared, and so is a container's first process: no signal from inside
    ends it (pid_namespaces(7)), and a launcher ends when its ranks have.
    """
    family = Family(str(os.getpid()), _UNMARKED)
    for pid in sorted(job.pids - {job.notebook, 1}):
        family.add_rank(pid)
    family.refresh()
    before = family.living()
    left = family.end_for_good()
    return [pid for pid in before if pid not in left], left
