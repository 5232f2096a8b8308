"""Import a module while the processors are wanted elsewhere: by ranks that start."""

from __future__ import annotations

import _thread
import contextlib
import os
import time
from importlib import import_module
from types import ModuleType

# Beside a busy thread on its processor one of this nice value gets a tenth of it (sched(7), the
# weights of kernel/sched/core.c): what takes 0.1 s takes a second, and nothing waits for ever.
_NICE = 10
# A session of this nice value gets a thirtieth of a processor beside another that keeps all of them
# busy, however many threads it has. So it is for a while only.
_AUTOGROUP_NICE = 19
_MOST = 2.0  # seconds
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
    before = _read_autogroup()
    if before is not None:
        _set_autogroup(max(before, _AUTOGROUP_NICE))
    try:
        _thread.start_new_thread(import_it, ())
        is_over = is_done.acquire(timeout=_BEGIN_LIMIT)
        has_begun = is_over or not turn.acquire(blocking=False)
        is_over = is_over or (has_begun and is_done.acquire(timeout=_MOST - _BEGIN_LIMIT))
    except RuntimeError:  # no thread can be started
        has_begun = is_over = False
    if before is not None:
        _set_autogroup(before)
    if has_begun and not is_over:
        is_done.acquire()  # an import ends
    if raised:
        raise raised[0]
    return import_module(name)


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
