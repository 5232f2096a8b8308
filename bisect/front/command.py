"""Start a command as its shell would have: the same descriptors, signals and environment."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from ..base.errors import NO_SUCH_PROGRAM, NOT_ALLOWED, CannotStart
from .signals import Dispositions

_PR_SET_PDEATHSIG = 1  # prctl(2)


class NoProcess(Exception):
    """There is no process left for the command beside this one."""


def start_command(words: Sequence[str], environ: Mapping[str, str], before: Dispositions) -> int:
    """Start a command and return its pid. If we are killed, so is it: as if it had been killed.

    Raises CannotStart, and NoProcess.
    """
    die_with_us = _parent_death_signal()
    here = os.getpid()
    reader, writer = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(reader)
        os.close(writer)
        raise NoProcess(error.strerror) from None
    if pid == 0:
        try:
            if die_with_us is not None:
                die_with_us()
            if os.getppid() != here:  # it was killed before that
                os._exit(128 + signal.SIGKILL)
            before.restore()
            os.execvpe(words[0], list(words), dict(environ))
        except OSError as error:
            os.write(writer, str(error.errno or errno.ENOEXEC).encode())
        except BaseException:
            os.write(writer, str(errno.EINVAL).encode())
        finally:
            os._exit(NO_SUCH_PROGRAM)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()  # ends when the program runs: the pipe is closed then
    if said:
        os.waitpid(pid, 0)
        number = int(said)
        raise _cannot_start(words[0], OSError(number, os.strerror(number)))
    return pid


def exec_command(
    words: Sequence[str], environ: Mapping[str, str], before: Dispositions
) -> NoReturn:
    """Become the command, in this process. Raises CannotStart."""
    try:
        before.restore()
        os.execvpe(words[0], list(words), dict(environ))
    except OSError as error:
        raise _cannot_start(words[0], error) from None


def _parent_death_signal() -> Callable[[], object] | None:
    """Return a function that has the kernel kill its process when its parent dies; None without."""
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None
    return lambda: prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _cannot_start(program: str, error: OSError) -> CannotStart:
    if isinstance(error, FileNotFoundError):
        why, status = "there is no such program", NO_SUCH_PROGRAM
    else:
        why, status = error.strerror or str(error), NOT_ALLOWED
    return CannotStart(f"{program!r} cannot be started: {why}", status)
