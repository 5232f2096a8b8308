"""Gives the monitor permission to read this process's memory, or leaves stacks behind where the
kernel forbids it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

from ..base.error_guard import ignore_our_errors
from ..base.proc import find_peer_pid

if TYPE_CHECKING:
    from socket import socket

YAMA = "/proc/sys/kernel/yama/ptrace_scope"
_PR_SET_PTRACER = 0x59616D61  # prctl(2); "Yama"


class PtracePermission:
    """The permission that this process gives to look at it, where Yama asks for one (scope 1)."""

    def __init__(self) -> None:
        """No process has it before allow()."""
        self._tracer = 0
        self._prctl: Callable[..., int] | None = None

    def allow(self, connection: socket) -> None:
        """Let the monitor at the other end read our memory, and what it starts, but no other
        process of this user's. The monitor that was allowed before no longer is.

        The permission is not inherited by fork(), so forked children give it again (PR_SET_PTRACER
        (2const)), by the function that is there already: after a fork nothing is loaded.
        """
        with ignore_our_errors():
            with open(YAMA) as file:
                if int(file.read()) != 1:
                    return
            self._tracer = find_peer_pid(connection)
            if self._prctl is None:
                import ctypes  # 5 ms, and only needed under Yama

                self._prctl = ctypes.CDLL(None).prctl
                os.register_at_fork(after_in_child=self._give)
            self._give()

    def _give(self) -> None:
        if self._prctl is not None and self._tracer > 0:
            self._prctl(_PR_SET_PTRACER, self._tracer, 0, 0, 0)


class StackTimer:
    """A C timer that writes all Python stacks to a file when a step has lasted too long.

    Armed at the start of a step, because under a held GIL nothing could arm it later, and only
    where py-spy may not look. A process has one such timer (faulthandler's), which may be the job's
    own watchdog: armed or cancelled by us, that would never fire. So a `shared` one is used only
    until anything of the job imports that module, which is as far as anything can come without it;
    from then on it is the job's. It is never armed while the process forks: a child would wait for
    its thread, which is not there, when it ends (faulthandler.c, cancel_dump_traceback_later).
    """

    def __init__(self, path: str, shared: bool) -> None:
        """The file is made when the timer is first armed."""
        self._path = path
        self._shared = shared
        self._file: IO[str] | None = None
        self._timers: Any = None
        self._is_the_jobs = False
        self._seconds = 0.0  # while it is armed
        self._pid = os.getpid()

    def arm(self, seconds: float) -> None:
        """Write stacks every `seconds` until the step ends."""
        with ignore_our_errors(OSError, ValueError, ImportError):
            if not self._is_free():
                return
            if self._file is None:
                self._file = open(self._path, "w")  # noqa: SIM115 the timer writes to it later
                os.register_at_fork(before=self._stop, after_in_parent=self._go_on)
            self._seconds = seconds
            self._go_on()

    def disarm(self) -> None:
        """Stop: the step is over."""
        self._stop()
        self._seconds = 0.0

    def _go_on(self) -> None:
        if self._is_armed():
            self._timers.dump_traceback_later(self._seconds, repeat=True, file=self._file)

    def _stop(self) -> None:
        if self._is_armed():
            self._timers.cancel_dump_traceback_later()

    def _is_armed(self) -> bool:
        return self._seconds > 0 and not self._is_the_jobs and os.getpid() == self._pid

    def _is_free(self) -> bool:
        if self._timers is None:
            if self._shared and "faulthandler" in sys.modules:
                self._is_the_jobs = True
            else:
                import faulthandler

                self._timers = faulthandler
                if self._shared:  # the job's own import is to be heard
                    sys.modules.pop("faulthandler", None)
                    sys.meta_path.insert(0, self)
        return not self._is_the_jobs

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> None:
        """Hear of an import, in sys.meta_path: the module itself is found by the others."""
        if name == "faulthandler":
            self.disarm()
            self._is_the_jobs = True
            self.forget()

    def forget(self) -> None:
        """Hear of no more imports."""
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
