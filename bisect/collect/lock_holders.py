"""Processes outside the job that have a lock which a rank waits for. Once such a process is done
the lock is free: its work is as good as the rank's own.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

from ..base.facts import Look
from ..evidence import movement
from ..evidence.look import Target

MOST_COMPUTING = 300.0  # seconds for which burning a CPU in the same places counts as work
Keep = Callable[[list[Look], Look], None]  # LookSeries.keep


class LockHolders:
    """The looks at them, in a series of looks at a job."""

    def __init__(self) -> None:
        """No process is known to have a lock yet."""
        self.waiting: dict[int, set[int]] = {}  # by the holder's pid, those of ranks that wait
        self._looks: dict[int, list[Look]] = {}  # by pid, oldest first

    def find(self, looks: Iterable[tuple[int, Look]], known: Container[int]) -> list[Target]:
        """Return the processes to look at: those that have a lock which one of these looks shows,
        each with the pid of its rank. `known` are processes of the job, and our own.
        """
        self.waiting = {}
        for rank, look in looks:
            owners = [lock.holder for lock in look.locks]
            owners += [file.owner for file in look.awaited_files]
            for owner in owners:
                if owner and owner not in known:
                    self.waiting.setdefault(owner, set()).add(rank)
        return [Target(pid, "child") for pid in self.waiting]

    def add(self, one: Look, keep: Keep) -> bool:
        """Keep a look at a holder; return whether it is at one."""
        if one.pid not in self.waiting:
            return False
        if one.state:
            keep(self._looks.setdefault(one.pid, []), one)
        return True

    def describe_work(self, rank: int, span: float) -> str:
        """Return what the processes do that a rank (its pid) waits for, over the last `span`
        seconds; "" for nothing.
        """
        found = (self._describe_work(p, span) for p, of in self.waiting.items() if rank in of)
        return "; ".join(filter(None, found))

    def _describe_work(self, pid: int, span: float) -> str:
        looks = self._looks.get(pid, [])
        recent = select_looks_since(looks, span)
        known = movement.collect_places(looks[: len(looks) - len(recent)])
        does = movement.describe_movement(recent, [], known)
        if not does and looks and looks[-1].at - looks[0].at < MOST_COMPUTING:
            does = movement.describe_computing(recent)
        return f"waits for a lock of {looks[0].name} ({pid}), which {does}" if does else ""


def select_looks_since(looks: Sequence[Look], span: float) -> list[Look]:
    """Return the looks of the last `span` seconds, and the one before them; two at the least."""
    if not looks:
        return []
    start = looks[-1].at - span
    before = max((i for i, one in enumerate(looks) if one.at <= start), default=0)
    return list(looks[min(before, max(0, len(looks) - 2)) :])
