"""End a job's family: every signal of ours is sent here.

The family is the process tree as seen so far, the sessions that ranks lead, and every process of
this user whose environment carries the job's mark: wandb-core has a session of its own, and a
child whose parent is gone belongs to init.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Collection, Iterable

from ..evidence.sample import family, marked, pids, started, stat
from ..rank.place import JOB_VARIABLE


class Family:
    """The processes of a job on this node: ranks, and what descended from them."""

    def __init__(self, job: str, variable: str = JOB_VARIABLE) -> None:
        """`job` is the mark that all of them have in their environment, as `variable`."""
        self._job, self._variable = job, variable
        self._seen: dict[int, tuple[int, int]] = {}  # pid: (start in ticks, pid of its rank)
        self.ranks: set[int] = set()
        self.spared: set[int] = set()  # marked as well, and not to be ended: monitors

    def add_rank(self, pid: int) -> None:
        """A rank: whatever descends from it belongs to the family."""
        self.ranks.add(pid)
        self._add(pid, pid)

    def refresh(self) -> None:
        """Take in the descendants that exist now."""
        for pid, rank in family(self.ranks).items():
            self._add(pid, rank)

    def children(self, rank_pid: int) -> list[int]:
        """Return the living descendants of a rank, by pid."""
        return [p for p in self.living() if self._seen[p][1] == rank_pid and p != rank_pid]

    def living(self) -> list[int]:
        """Return the pids of the family that are still there."""
        return sorted(p for p, (ticks, _) in list(self._seen.items()) if _is_running(p, ticks))

    def search(self) -> None:
        """Look through all processes for strays: by the mark, and by the sessions of ranks."""
        for pid in marked(self._variable, self._job):
            if pid not in self._seen and pid != os.getpid() and pid not in self.spared:
                self._add(pid, 0)
        for pid in set(pids()) - set(self._seen) - {os.getpid()}:
            with contextlib.suppress(OSError):
                if os.getsid(pid) in self.ranks:
                    self._add(pid, 0)

    def end(self, numbers: Iterable[signal.Signals] = (signal.SIGKILL,)) -> None:
        """Signal the whole family, all at once."""
        for pid in self.living():
            for number in numbers:
                send(pid, self._seen[pid][0], number)

    def end_ranks(self, ranks: Collection[int]) -> None:
        """SIGKILL these ranks, by pid, and what descended from them."""
        for pid in self.living():
            ticks, rank = self._seen[pid]
            if rank in ranks:
                send(pid, ticks, signal.SIGKILL)

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


def send(pid: int, ticks: int, number: signal.Signals) -> bool:
    """Send a signal to the process that had `pid` at `ticks`, and to no later one of that pid."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if started(pid) != ticks:
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def resume(pid: int) -> None:
    """Let a process go on that a look had stopped and could not let go on itself."""
    ticks = started(pid)
    if ticks is not None:
        send(pid, ticks, signal.SIGCONT)


def has_ended(descriptor: int) -> bool:
    """Return whether the process behind a pidfd has ended."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def monitors(variable: str, mark: str) -> set[int]:
    """Return the pids of the monitors of a job, which may not have said a word yet."""
    found = set()
    for pid in marked(variable, mark):
        now = stat(pid)
        if now is None or now.state == "D":  # to read its command line might take for ever
            continue
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read(4096).split(b"\0")
            if words[4:5] == [b"monitor"]:  # python -I -S FOLDER monitor {...}
                found.add(pid)
    return found


def lives(pid: int) -> bool:
    """Return whether a process is there and has not ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        return not has_ended(descriptor)
    finally:
        os.close(descriptor)


def _is_running(pid: int, ticks: int) -> bool:
    found = stat(pid)
    return found is not None and found.started == ticks and found.state not in "ZX"
