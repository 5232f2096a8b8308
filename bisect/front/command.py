"""The command behind the front: how it is started, and what becomes of signals to the front.

It is started as its shell would have: the same descriptors, signals and environment. Of each
signal: what the front does about it, what the command would have had without us, and which were
sent to our whole process group, so that the command has them already.

A signal carries its sender, but not its addressee: `kill -TERM -PGID`, Ctrl-C, or a batch system
that signals every process of a step reach the command as well as us, `kill -TERM PID` us alone.
Handed on in the first case the command would get it twice (and requeue a job twice). So one more
process stands in our group, does nothing, and says what it got.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from ..base.errors import NO_SUCH_PROGRAM, NOT_ALLOWED, CannotStart
from ..base.proc import read_stat

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


# Python ignores these in itself before any code of ours runs (Py_InitializeFromConfig,
# init_signals).
_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ")


class Dispositions:
    """The signal mask and the ignored signals with which we were started."""

    def __init__(self) -> None:
        """Note them, and block every signal in this process: it fetches them one by one."""
        self._ignored = _ignored_before_python()
        children = signal.getsignal(signal.SIGCHLD)
        if children is signal.SIG_IGN:
            # With SIGCHLD ignored the kernel keeps no exit status for us (wait(2), NOTES).
            self._ignored.add(signal.SIGCHLD)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

    def restore(self) -> None:
        """In the command's process, before it runs its program: as without us."""
        for name in _IGNORED_BY_PYTHON:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        for number in self._ignored:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)


def catch_all_signals() -> None:
    """In a process of ours: catch every signal and do nothing, so that none ends or stops us.

    A handler, not SIG_IGN: what we start does not inherit it.
    """
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        try:
            signal.signal(number, _do_nothing)
        except (OSError, ValueError):  # kept by the C library (32, 33)
            continue
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def _do_nothing(number: int, frame: object) -> None:
    pass


def _ignored_before_python() -> set[int]:
    """Return which of the signals that Python ignores in itself were ignored before.

    That cannot be read any more. What our parent ignores we inherited (a shell after
    `trap '' PIPE`), unless it is a Python, which ignores them in itself and gives its children the
    default back (subprocess, restore_signals).
    """
    parent = os.getppid()
    try:
        with open(f"/proc/{parent}/status") as file:
            mask = next(int(line.split()[1], 16) for line in file if line.startswith("SigIgn:"))
        program = os.path.basename(os.readlink(f"/proc/{parent}/exe"))
    except (OSError, ValueError, StopIteration):
        return set()
    if program.startswith(("python", os.path.basename(os.path.realpath(sys.executable)))):
        return set()
    numbers = (int(getattr(signal, name)) for name in _IGNORED_BY_PYTHON)
    return {number for number in numbers if mask & 1 << (number - 1)}


GROUP_DELAY = 0.1  # seconds within which all of a group have a signal: the sender loops over pids
# The same for one that nobody waits for: on a busy machine the stand-in may be late to tell of it,
# and a command that stops and goes on, or whose window changes, would have it twice.
GROUP_PATIENCE = 1.0
_STOPPED, _GOES_ON = b"S", b"C"
_READY = 0  # no signal has this number
_LOOK_EVERY = 0.2  # seconds, while the command is stopped


class GroupSignals:
    """Our end of the process that stands in our group."""

    def __init__(self, link: socket.socket) -> None:
        """`link` is a connection to stand_in_group()."""
        self._link = link
        self.is_gone = False
        self._is_ready = False
        self._got: dict[int, float] = {}  # when it reported each signal (monotonic)

    def has_all(self, number: int, within: float = GROUP_DELAY) -> bool | None:
        """Return whether a signal that we just got was sent to all of the group, as the stand-in
        tells `within` seconds; None if that is not known: the process is gone, or was not there yet
        when the signal came.
        """
        was_ready = self._is_ready
        began = time.monotonic()
        until = began + within
        while True:
            sender = self._got.pop(number, None)
            if sender is not None and sender > began - 3 * GROUP_DELAY:
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False if was_ready else None
            self.is_gone = not self._read(left)
            if self.is_gone:
                return None

    def say_stopped(self) -> None:
        """We are about to stop because the command has: the stand-in must see it go on."""
        self._send(_STOPPED)

    def say_going_on(self) -> None:
        """We are running again."""
        self._send(_GOES_ON)

    def _send(self, word: bytes) -> None:
        with contextlib.suppress(OSError):
            self._link.send(word, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def _read(self, seconds: float) -> bool:
        """Take in what it tells within `seconds`; return False if it is gone."""
        poll = select.poll()
        poll.register(self._link, select.POLLIN)
        if not poll.poll(seconds * 1000):
            return True
        try:
            data = self._link.recv(256, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        now = time.monotonic()
        self._is_ready = self._is_ready or _READY in data
        self._got.update(dict.fromkeys(data, now))
        return bool(data)


def stand_in_group(link: socket.socket, front: int, command: int) -> None:
    """Run the extra process: returns when `front`, at the other end of `link`, is gone."""
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    catch_all_signals()
    link.send(bytes([_READY]), socket.MSG_NOSIGNAL)
    is_stopped = False
    poll = select.poll()
    for end in (reader, link.fileno()):
        poll.register(end, select.POLLIN)
    while True:
        ready = dict(poll.poll(_LOOK_EVERY * 1000 if is_stopped else None))
        if reader in ready:
            link.send(os.read(reader, 256), socket.MSG_NOSIGNAL)
        if link.fileno() in ready:
            word = link.recv(16)
            if not word:
                return
            is_stopped = word[-1:] == _STOPPED
        elif is_stopped and ((found := read_stat(command)) is None or found.state not in "Tt"):
            is_stopped = False
            os.kill(front, signal.SIGCONT)
