"""Processes that we fork: whether there is room for one, its end, and what it says, each with a
deadline; and what signals it withstands. Little is imported here: a command starts after it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import time

_FEW = 256  # a limit of so many processes leaves room for the job's before ours
_ROOM = 32  # processes that must be left below such a limit


def why_no_room() -> str:
    """Return in words why no process of ours may be started, "" if it may: where there are few,
    they are the job's.
    """
    allowed = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if allowed == resource.RLIM_INFINITY or allowed > _FEW or os.geteuid() == 0:
        return ""
    used, user = 0, os.geteuid()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                used += os.stat(f"/proc/{name}").st_uid == user
            except OSError:
                continue
    if used + _ROOM <= allowed:
        return ""
    return f"this user may have {allowed} processes, and has {used}"


def await_child(child: int, end: float) -> None:
    """Wait until a child that is to end at once has ended; after `end` (monotonic), end it."""
    with contextlib.suppress(ChildProcessError):  # the job ignores SIGCHLD, or waits for any child
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if time.monotonic() > end:  # a function of the job's that runs at each fork hangs
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return
            time.sleep(0.001)


def read_pipe(pipe: int, end: float) -> str:
    """Return what is said on a pipe until it is closed, or until `end`."""
    said = b""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while poll.poll(max(0.0, end - time.monotonic()) * 1000):
        more = os.read(pipe, 1 << 12)
        if not more:
            break
        said += more
    return os.fsdecode(said)


# What a batch system, a terminal or a person sends to all processes of a job at once. Ignored, and
# not handled: a handler would be gone in what is started here. The monitor ends when its job has.
_WITHSTOOD = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1),
    *(signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGPIPE),
    *(signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGXCPU, signal.SIGIO),
    *(signal.SIGPWR, signal.SIGURG, signal.SIGWINCH),
)


def withstand_signals() -> None:
    """Ignore what is meant for the job, in this process and in the program that it becomes: what is
    ignored stays so (execve(2)). SIGKILL and SIGSTOP cannot be, and what says that we have failed
    ourselves (SIGSEGV, SIGABRT) is not.
    """
    for number in (*_WITHSTOOD, *range(signal.SIGRTMIN, signal.SIGRTMAX + 1)):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
