"""How a process ended, in words."""

from __future__ import annotations

import signal

from ..base.process_facts import Look
from ..base.rank_facts import MachineFacts


def describe_exit_status(status: int) -> str:
    """Return in words how a process ended: "was ended by SIGSEGV", "ended with status 3"."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def describe_end(dead: Look, machine: MachineFacts) -> str:
    """Return in words how the process of a zombie ended, and whether its control group counts any
    that the kernel ended for want of memory.
    """
    how = describe_exit_status(dead.status or 0)
    count = find_oom_kills(dead, machine) if dead.status == -signal.SIGKILL else 0
    return f"{how} ({describe_oom_kills(count)})" if count else how


def find_oom_kills(dead: Look | None, machine: MachineFacts) -> int:
    """Return how many processes of the control group of one the kernel has ended for want of
    memory; of one that is known no more those of our own group.
    """
    return (dead.oom_kills if dead is not None else None) or machine.oom_kills or 0


def describe_oom_kills(count: int) -> str:
    """Return that in words. Since the group was made: by this start, or by one before in the same
    container.
    """
    who = "a process" if count == 1 else f"{count} processes"
    return f"the kernel has ended {who} of its control group for want of memory"
