"""How a process that watches loads more than it needs to listen: after a delay, and at low
priority, while ranks that start want the processors.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import select
import time
from types import ModuleType
from typing import NamedTuple

_LEAST, _MOST = 5.0, 20.0  # seconds
_TICK = 0.25  # seconds between two looks for an idle processor
_IDLE_LOOKS = 2  # in a row: a rank that waits for its disk is back at once


class DelayLimits(NamedTuple):
    """In seconds: after `least` the delay ends as soon as a processor is idle, after `most` in any
    case.
    """

    least: float
    most: float


def limit_delay(stall: float, limit: float | None) -> DelayLimits:
    """Return how long to wait where the first of the clocks of a watch, --stall and --limit, runs
    out after so many seconds: a quarter of it at most.
    """
    quarter = min(stall, limit or stall) / 4
    return DelayLimits(min(_LEAST, quarter), min(_MOST, quarter))


class LoadDelay:
    """One delay before a process loads the rest of its code."""

    def __init__(self, limits: DelayLimits, since: float | None = None) -> None:
        """It ends within `limits`, of which time has passed `since` then (monotonic)."""
        self._limits = limits
        self._began = time.monotonic() if since is None else since
        self._idle_looks = 0

    def next_wait(self) -> float:
        """Return for how many seconds to wait before this is asked again, 0.0 when it is over."""
        passed = time.monotonic() - self._began
        if passed < self._limits.least:
            return self._limits.least - passed
        self._idle_looks = self._idle_looks + 1 if is_processor_idle() else 0
        if self._idle_looks >= _IDLE_LOOKS:
            return 0.0
        return max(0.0, min(_TICK, self._limits.most - passed))

    def wait_for(self, poll: select.poll) -> bool:
        """Wait to its end, or until there is something to read; return whether there is."""
        while seconds := self.next_wait():
            if poll.poll(seconds * 1000):
                return True
        return False


def is_processor_idle(loadavg: str = "/proc/loadavg") -> bool:
    """Return whether fewer threads want to run than there are processors; True if that is not told.

    The fourth field counts those of the whole machine, the one that asks among them
    (proc_loadavg(5)).
    """
    try:
        with open(loadavg, encoding="ascii") as file:
            running = int(file.read().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return True
    return running <= (os.cpu_count() or 1)


# Beside a busy thread on its processor one of this nice value gets a tenth of it (sched(7), the
# weights of kernel/sched/core.c): what takes 0.1 s takes a second, and nothing waits for ever.
_NICE = 10
# A session of this nice value gets a thirtieth of a processor beside another that keeps all of them
# busy, however many threads it has. So it is for a while only.
_AUTOGROUP_NICE = 19
_LONGEST_AT_LOW_PRIORITY = 2.0  # seconds
_BEGIN_LIMIT = 1.0  # seconds for a thread to begin: one that finds no memory ends without a word
_AUTOGROUP = "/proc/self/autogroup"
_AUTOGROUP_TRIES = 10  # the kernel takes ten changes a second (kernel/sched/autogroup.c)


def import_at_low_priority(name: str) -> ModuleType:
    """Return module `name`, imported in a thread that gives way to others; here, where there can
    be no thread. Raises what the import raises.

    On Linux each thread has a nice value of its own (nice(2), setpriority(2)), and only root may
    lower one: so it is a thread that ends with the import, and the process stays as it was. Where
    sessions are scheduled as groups, a nice value counts only within one, and a monitor is alone in
    its own: then the whole session gives way (sched(7), the autogroup feature).
    """
    from importlib import import_module  # the process in front of a command only waits

    turn, is_done = _thread.allocate_lock(), _thread.allocate_lock()
    raised: list[BaseException] = []

    def import_it() -> None:
        if not turn.acquire(blocking=False):
            return
        try:
            with contextlib.suppress(OSError):  # a sandbox may forbid it
                os.nice(_NICE)
            import_module(name)
        except BaseException as error:
            raised.append(error)
        finally:
            is_done.release()

    is_done.acquire()
    _PRIORITY.lower()
    try:
        _thread.start_new_thread(import_it, ())
        is_over = is_done.acquire(timeout=_BEGIN_LIMIT)
        has_begun = is_over or not turn.acquire(blocking=False)
        is_over = is_over or (
            has_begun and is_done.acquire(timeout=_LONGEST_AT_LOW_PRIORITY - _BEGIN_LIMIT)
        )
    except RuntimeError:  # no thread can be started
        has_begun = is_over = False
    _PRIORITY.restore()
    if has_begun and not is_over:
        is_done.acquire()  # an import ends
    if raised:
        raise raised[0]
    return import_module(name)


class _SessionPriority:
    """The nice value of our session: low while any thread asks for that, and then as before."""

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._asking = 0
        self._before: int | None = None  # None: sessions are no groups of the scheduler

    def lower(self) -> None:
        with self._lock:
            self._asking += 1
            if self._asking == 1:
                self._before = _read_autogroup()
                if self._before is not None:
                    _set_autogroup(max(self._before, _AUTOGROUP_NICE))

    def restore(self) -> None:
        with self._lock:
            self._asking -= 1
            if not self._asking and self._before is not None:
                _set_autogroup(self._before)


_PRIORITY = _SessionPriority()


def _read_autogroup() -> int | None:
    """Return the nice value of our session, None where there is none."""
    try:
        with open(_AUTOGROUP, encoding="ascii") as file:
            return int(file.read().rpartition(" ")[2])
    except (OSError, ValueError):
        return None


def _set_autogroup(nice: int) -> None:
    for _ in range(_AUTOGROUP_TRIES):
        try:
            with open(_AUTOGROUP, "w", encoding="ascii") as file:
                file.write(str(nice))
            return
        except BlockingIOError:  # another process has just changed one
            time.sleep(0.05)
        except OSError:
            return
