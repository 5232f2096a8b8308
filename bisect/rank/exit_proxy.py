"""The process in front of a rank that no launcher started: it keeps the exit status.

A rank that hangs is ended by SIGKILL and can tell its shell nothing; the process in front of it
can. It stays out of the way: no imports, no threads, the same terminal and process group.
"""

from __future__ import annotations

import os
import select
import signal

from ..base.lazy_dataclass import dataclass

_SI_KERNEL = 0x80  # include/uapi/asm-generic/siginfo.h
OUTCOME_LIMIT = 10.0  # seconds for the monitor to say the outcome once the rank is gone
_STATUSES = {"ok": 0, "usage": 2, "hang": 3, "slow": 4, "silent": 4, "crash": 5}
EXIT_STATUS = {**_STATUSES, "interrupted": 130}


@dataclass(frozen=True)
class ProxyResult:
    """In the rank: the pipe that the monitor says the outcome on. In front: the exit status."""

    status: int | None
    pipe: int | None


def start_exit_proxy() -> ProxyResult:
    """Fork. Return the pipe in the child, which goes on as the rank; in the parent, once the child
    has ended, its status.
    """
    reader, writer = os.pipe()
    rank = os.fork()
    if rank == 0:
        os.close(reader)
        return ProxyResult(None, writer)
    os.close(writer)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: os.kill(rank, number))
    status = os.waitstatus_to_exitcode(_wait_for_rank(rank))
    said = _read_outcome(reader)
    if said in EXIT_STATUS and status != 2:
        return ProxyResult(EXIT_STATUS[said], None)
    return ProxyResult(status if status >= 0 else 128 - status, None)


def _wait_for_rank(rank: int) -> int:
    """Return the wait status of the rank. SIGINT is handed on if a process sent it: what the kernel
    sends for a terminal (man 2 sigaction, SI_KERNEL) the rank has got as well.
    """
    awaited = {signal.SIGINT, signal.SIGCHLD}
    # A shell may leave it ignored, and then it does not come.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    while True:
        pid, waited = os.waitpid(rank, os.WNOHANG)
        if pid:
            return waited
        # No limit: the end of the rank is a signal too.
        signalled = signal.sigwaitinfo(awaited)
        if signalled.si_signo == signal.SIGINT and signalled.si_code != _SI_KERNEL:
            os.kill(rank, signal.SIGINT)


def _read_outcome(reader: int) -> str:
    ready, _, _ = select.select([reader], [], [], OUTCOME_LIMIT)
    return os.read(reader, 64).decode().strip() if ready else ""
