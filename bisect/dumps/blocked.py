"""Which system call a thread is in, as far as nothing but its stack tells. Pure.

The functions of the C library are named after the calls they make (man 2 futex, epoll_wait ...);
of Python's standard library those are listed that can block in one way only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..diagnosis.frames import short
from ..facts import Frame

_DEEP = 8  # native frames that are asked, from the innermost on
_NATIVE = tuple(
    (re.compile(rf"(?:__(?:libc_|GI_)?)?(?:{names})(?:64)?(?:_nocancel)?$"), call)
    for names, call in (
        (r"(?:clock_)?nanosleep|usleep|sleep", "clock_nanosleep"),
        (r"pause", "pause"),
        (
            r"futex\w*|lll_lock_wait\w*|pthread_cond_\w*wait\w*|pthread_join|new_sem_wait\w*",
            "futex",
        ),
        (r"sem_(?:timed|clock)?wait\w*|pthread_mutex_\w*lock\w*", "futex"),
        (r"pthread_clockjoin\w*|_pthread_\w*join\w*", "futex"),
        (r"epoll_p?wait2?", "epoll_wait"),
        (r"p?poll", "poll"),
        (r"p?select6?", "select"),
        (r"recv(?:from)?", "recvfrom"),
        (r"recvmm?sg", "recvmsg"),
        (r"send(?:to)?", "sendto"),
        (r"connect", "connect"),
        (r"accept4?", "accept"),
        (r"p?read", "read"),
        (r"p?write", "write"),
        (r"open(?:at)?", "openat"),
        (r"wait(?:4|pid)", "wait4"),
        (r"waitid", "waitid"),
        (r"flock", "flock"),
        (r"fsync", "fsync"),
    )
)
_PYTHON = (
    ("threading.py", "wait acquire join _wait_for_tstate_lock __enter__", "futex"),
    ("multiprocessing/synchronize.py", "__enter__ acquire wait", "futex"),
    ("selectors.py", "select", "poll"),
    ("socket.py", "accept", "accept"),
    ("socket.py", "readinto", "recvfrom"),
    ("socket.py", "create_connection", "connect"),
    ("ssl.py", "read", "read"),
    ("subprocess.py", "_try_wait", "wait4"),
    ("multiprocessing/popen_fork.py", "poll", "wait4"),
    ("multiprocessing/connection.py", "_recv", "read"),
    ("multiprocessing/connection.py", "_send", "write"),
)
_SLEEPS = re.compile(r"\btime\.sleep\(")
_PYTHONS_SLEEP = frozenset(["time_sleep", "pysleep"])  # Modules/timemodule.c


def blocked(frames: Sequence[Frame], source: str = "") -> str:
    """Return the name of the system call that `frames` (innermost first) end in, "" if they do not
    tell. `source` is the line of the innermost Python frame, where the dump has it.
    """
    for frame in frames[:_DEEP]:
        if not frame.native:
            break
        name = short(frame.name.partition("@")[0])
        found = next((call for names, call in _NATIVE if names.match(name)), "")
        if found:
            return found
    inner = next((frame for frame in frames if not frame.native), None)
    if inner is None:
        return ""
    if _SLEEPS.search(source):
        return "clock_nanosleep"
    name = short(inner.name)
    return next(
        (
            call
            for file, functions, call in _PYTHON
            if inner.file.endswith(f"/{file}") and name in functions.split()
        ),
        "",
    )


def without_sleep(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """Return `frames` without the native ones of a time.sleep: they are Python's own, and no native
    function of anybody's that hangs.
    """
    native = next((at for at, frame in enumerate(frames) if not frame.native), len(frames))
    sleeps = any(frame.name in _PYTHONS_SLEEP for frame in frames[:native])
    return tuple(frames[native:] if sleeps else frames)
