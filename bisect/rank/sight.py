"""Let the monitor see into this process, or leave stacks behind where the kernel forbids it."""

from __future__ import annotations

import contextlib
import faulthandler
import os
from typing import IO

YAMA = "/proc/sys/kernel/yama/ptrace_scope"
_PR_SET_PTRACER = 0x59616D61  # prctl(2); "Yama"
_PR_SET_PTRACER_ANY = -1


def allow_looks() -> None:
    """Let any process of this user read our memory, where Yama asks for leave (scope 1).

    The leave is not inherited by fork(), so forked children give it again (PR_SET_PTRACER(2const)).
    """
    with contextlib.suppress(OSError, ValueError):
        with open(YAMA) as file:
            if int(file.read()) != 1:
                return
        _allow()
        os.register_at_fork(after_in_child=_allow)


def _allow() -> None:
    import ctypes  # 5 ms, and only needed under Yama

    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY, 0, 0, 0)


class StackTimer:
    """A C timer that writes all Python stacks to a file when a step has lasted too long.

    Armed at the start of a step, because under a held GIL nothing could arm it later, and only
    where py-spy may not look.
    """

    def __init__(self, path: str) -> None:
        """The file is made when the timer is first armed."""
        self._path = path
        self._file: IO[str] | None = None

    def arm(self, seconds: float) -> None:
        """Write stacks every `seconds` until the step ends."""
        with contextlib.suppress(OSError, ValueError):
            if self._file is None:
                self._file = open(self._path, "w")  # noqa: SIM115 the timer writes to it later
            faulthandler.dump_traceback_later(seconds, repeat=True, file=self._file)

    def disarm(self) -> None:
        """Stop: the step is over."""
        if self._file is not None:
            faulthandler.cancel_dump_traceback_later()
