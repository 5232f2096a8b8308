"""Start a command, hand signals on to it, and return its status, whatever becomes of the watch.

Three processes come of it, of which the command needs only the first:

  front      this one: blocks in sigtimedwait(2), and knows nothing of what is watched
  watcher    in a session of its own: hears monitors, looks from outside, writes, judges
  stand-in   in our process group: tells which signals were sent to all of it (command.py)

The latter two are no children of the front, so that the command's family looks as without us.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import resource
import select
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence

from ..base.errors import say as say
from ..base.forks import await_child, read_pipe, why_no_room
from ..base.loading import DelayLimits, LoadDelay
from ..base.proc import read_start_time, read_stat
from . import command
from . import command as group_signals
from .command import GROUP_DELAY, GROUP_PATIENCE, Dispositions, catch_all_signals

# Of the watch's process: a link to the front, and the command's pid.
Watch = Callable[[socket.socket, int], None]
TICK = 0.2  # seconds, where signals cannot be waited for
IDLE = 5.0  # seconds between two looks whether the watcher is still there
MEANT_FOR_US = 2.0  # seconds between two Ctrl-C, of which the second is for us
SILENCE_LIMIT = 10.0  # seconds without a word of the watcher, once the command has ended
STOPPED_LOOKS = 40  # the same for one that is stopped, 50 ms each
START_LIMIT = 5.0  # seconds for the helpers to be started
_LOST_ON_MOST = (signal.SIGWINCH, signal.SIGCONT, signal.SIGURG)  # ignored by default (signal(7))
_UNWATCHED = "The command runs without the watch from outside"
_LEAVING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def supervise(
    words: Sequence[str],
    environ: Mapping[str, str],
    watch: Watch,
    interrupted: Callable[[], None],
    keep_stdout: bool = False,
    keep: Sequence[int] = (),
    unwatched: Callable[[], None] = lambda: None,
    tidy_up: Callable[[], None] = lambda: None,
) -> tuple[int, bool]:
    """Run a command to its end; return its status as wait() has it (negative: the signal that ended
    it), and False; or the status that the watch gives in its place, and True. What signals do in
    this process is not put back: it has nothing left to do but to end.

    `watch` runs in a process of its own, which keeps our stderr, our stdout if `keep_stdout`, and
    the descriptors `keep`. `interrupted` is called when the command is told to end. Where
    there are no processes for us, `unwatched` is called, and this one becomes the command. Where
    the watch was lost, `tidy_up` runs in a process of its own in the end, which is not waited for.
    Raises CannotStart.
    """
    # Descriptors are closed below the sockets that have them, and no warning is to be printed.
    warnings.simplefilter("ignore")
    before = Dispositions()
    if why := why_no_room():
        say(f"{_UNWATCHED}: {why}")
        unwatched()
        command.exec_command(words, environ, before)
    try:
        pid = command.start_command(words, environ, before)
    except command.NoProcess as error:
        say(f"{_UNWATCHED}: {error}")
        unwatched()
        command.exec_command(words, environ, before)
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, before.mask)
        raise
    front = _Front(pid, interrupted, tidy_up)
    front.start_helpers(watch, keep_stdout, keep)
    _hold_only({front.watcher, front.group_link}, keep_stdout)
    return front.wait()


class _Front:
    """The process in front of one command. Raises nothing once it is made."""

    def __init__(
        self, pid: int, interrupted: Callable[[], None], tidy_up: Callable[[], None]
    ) -> None:
        """`pid` is the command's; `interrupted` and `tidy_up` as in supervise()."""
        self._pid = pid
        self._tidy_up = tidy_up
        self._note_interruption = interrupted
        self._link: socket.socket | None = None  # to the watcher
        self._group: group_signals.GroupSignals | None = None
        self.watcher = self.group_link = -1  # descriptors
        self._helpers: list[_Orphan] = []
        self._interrupted_at = float("-inf")
        self._heard_at = time.monotonic()
        self._status: int | None = None  # that the watch gives
        self._has_leave = False  # the watcher has nothing more to do
        self._is_untidy = True  # it has not seen monitors out
        self._has_said = False

    def start_helpers(self, watch: Watch, keep_stdout: bool, keep: Sequence[int]) -> None:
        """Start the watcher and the stand-in. Without one of them the command is no worse off."""
        try:
            self._start_both(watch, keep_stdout, keep)
        except OSError as error:
            self._say(f"{_UNWATCHED}: {error.strerror or error}")

    def _start_both(self, watch: Watch, keep_stdout: bool, keep: Sequence[int]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        group, stand_in = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        front, pid = os.getpid(), self._pid

        def be_the_watcher() -> None:
            _be_the_watcher(lambda: watch(theirs, pid), theirs, keep_stdout, keep)

        def stand() -> None:
            _stand_in_group(stand_in, front, pid)

        self._helpers = _start_orphans((be_the_watcher, stand))
        theirs.close()
        stand_in.close()
        self._link, self.watcher = ours, ours.fileno()
        self._group, self.group_link = group_signals.GroupSignals(group), group.fileno()

    # ---- while it runs -------------------------------------------------------------------------

    def wait(self) -> tuple[int, bool]:
        """Wait for the command's end, then for what the watch still has to write; return as
        supervise() does.
        """
        signals = signal.valid_signals()
        self._try(lambda: self._serve(signals))
        while not self._has_ended():  # whatever failed: this is left to be done
            time.sleep(TICK)
        self._tell({"t": "ended"})
        self._try(lambda: self._await_watcher(signals))
        self._try(self._end_helpers)
        _, waited = os.waitpid(self._pid, 0)
        status = os.waitstatus_to_exitcode(waited)
        return (status, False) if self._status is None else (self._status, True)

    def _serve(self, signals: set[signal.Signals]) -> None:
        """Hand signals on, and follow the command's stops, until it has ended."""
        while not self._has_ended():
            got = signal.sigtimedwait(signals, IDLE)
            self._try(self._take_messages)
            if got is None:
                continue
            if got.si_signo == signal.SIGCHLD:
                self._try(self._follow_stop)
                self._try(lambda: _reap_orphans(self._pid))
            else:
                self._try(functools.partial(self._hand_on, got))

    def _try(self, do: Callable[[], None]) -> None:
        """Do it; an error of ours is said, and is none of the command's."""
        try:
            do()
        except Exception as error:
            self._say(f"The command runs on: {error!r}")

    def _has_ended(self) -> bool:
        # Left to be reaped: it may be a rank, whose exit status its monitor can read until then.
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._pid, flags) is not None

    def _hand_on(self, got: signal.struct_siginfo) -> None:
        """Give the command a signal that was sent to us alone."""
        number = got.si_signo
        if number in _LEAVING:
            self._note_interruption()
        within = GROUP_PATIENCE if number in _LOST_ON_MOST else GROUP_DELAY
        has_it = self._group.has_all(number, within) if self._group is not None else None
        if has_it is None:
            if self._group is not None and self._group.is_gone:
                self._group = None
            # Of what came before the stand-in, the command, not yet begun, had lost these.
            is_lost = self._group is not None and number in _LOST_ON_MOST
            # SI_KERNEL: of the terminal (signal.h).
            has_it = is_lost or (got.si_code > 0 and _is_in_front())
        if not has_it:
            with contextlib.suppress(OSError):
                os.kill(self._pid, number)
        if number == signal.SIGINT:
            self._interrupted()

    def _interrupted(self) -> None:
        now = time.monotonic()
        twice = now < self._interrupted_at + MEANT_FOR_US
        self._interrupted_at = now
        if twice and not _reads_keys():
            self._tell({"t": "stop"})
            if self._link is None:
                with contextlib.suppress(OSError):
                    os.kill(self._pid, signal.SIGKILL)

    def _follow_stop(self) -> None:
        """If the command was stopped, stop as well: our shell waits for us, and must see it."""
        flags = os.WSTOPPED | os.WCONTINUED | os.WNOHANG
        try:
            changed = os.waitid(os.P_PID, self._pid, flags)
        except ChildProcessError:  # it can neither stop nor go on any more
            return
        if changed is None or changed.si_code != os.CLD_STOPPED or not _has_terminal():
            return
        if self._group is None:
            return  # no process would see it go on
        self._group.say_stopped()
        _stop_by(changed.si_status)
        self._group.say_going_on()

    # ---- the watcher ---------------------------------------------------------------------------

    def _tell(self, message: Mapping[str, object]) -> None:
        if self._link is not None:
            with contextlib.suppress(OSError):
                self._link.send(
                    json.dumps(message).encode(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
                )

    def _take_messages(self) -> None:
        """Take in what the watcher has said meanwhile."""
        while self._link is not None:
            try:
                data = self._link.recv(4096, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._lose_watcher("it ended early")
                return
            self._heard_at = time.monotonic()
            message = json.loads(data)
            if message["t"] == "left":
                self._status, self._has_leave = message["status"], True
                self._is_untidy = message.get("untidy", False)
            elif message["t"] == "lost":
                self._lose_watcher(message["why"])

    def _lose_watcher(self, why: str) -> None:
        if self._link is not None:
            self._link.close()
            self._link, self.watcher = None, -1
        if not self._has_leave:
            self._say(f"The watch from outside is gone ({why}); the command is not affected")

    def _await_watcher(self, signals: set[signal.Signals]) -> None:
        """Wait until the watcher has written what it knows, or says nothing any more."""
        self._heard_at = time.monotonic()
        looks = 0  # in which it was stopped; seconds would count while we were stopped as well
        while self._link is not None and not self._has_leave:
            looks = looks + 1 if self._helpers[0].is_stopped() else 0
            if looks > STOPPED_LOOKS:
                self._lose_watcher("it is stopped")
                return
            poll = select.poll()
            poll.register(self._link, select.POLLIN)
            poll.poll(50)
            self._take_messages()
            got = signal.sigtimedwait(signals, 0)
            if got is not None and got.si_signo in _LEAVING and self._status is None:
                self._tell({"t": "leave"})  # the command is gone: who waits now waits for us
                self._heard_at = min(self._heard_at, time.monotonic() + 2.0 - SILENCE_LIMIT)
            if time.monotonic() > self._heard_at + SILENCE_LIMIT:
                self._lose_watcher(f"nothing heard for {SILENCE_LIMIT:.0f} s")

    def _end_helpers(self) -> None:
        """End the stand-in, and a watcher that does not end by itself: it is stopped, or hangs."""
        ending = self._helpers[1:] if self._has_leave else self._helpers
        for one in ending:
            one.kill()
        if self._helpers and self._is_untidy:
            _start_orphans((lambda: _tidy_up(self._tidy_up),))

    def _say(self, text: str) -> None:
        if not self._has_said:
            self._has_said = True
            say(text)


def fill_closed_streams() -> None:
    """Open what is closed of stdin, stdout and stderr, so that nothing else of ours gets their
    numbers. Not for the command: what we open is closed in it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free, closed on exec (PEP 446)


def wait_to_load(front: socket.socket, starter: int | None, limits: DelayLimits) -> bool:
    """In the watcher: wait until the front or who started us has something to say, or the delay is
    over; return whether they have.
    """
    poll = select.poll()
    poll.register(front, select.POLLIN)
    if starter is not None:
        poll.register(starter, select.POLLIN)
    return LoadDelay(limits).wait_for(poll)


def end_as_command(status: int) -> int:
    """End as the command did, by the signal that ended it (negative); return the exit status where
    there was none, or where that is not possible (the first process of a container).
    """
    if status >= 0:
        return status
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError, ValueError):
        signal.signal(-status, signal.SIG_DFL)  # SIGKILL and SIGSTOP have no other
    with contextlib.suppress(OSError, ValueError):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-status})
        os.kill(os.getpid(), -status)
    return 128 - status


# ---- processes of ours ---------------------------------------------------------------------------


class _Orphan:
    """A process of ours that is not our child, distinguished from later ones with its pid."""

    def __init__(self, pid: int) -> None:
        self._pid, self._started = pid, read_start_time(pid)

    def kill(self) -> None:
        """SIGKILL it, if it is still there."""
        if self._started and read_start_time(self._pid) == self._started:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)

    def is_stopped(self) -> bool:
        """Return whether it was stopped (SIGSTOP)."""
        found = read_stat(self._pid)
        return found is not None and found.state == "T" and found.started == self._started


def _start_orphans(tasks: Sequence[Callable[[], None]]) -> list[_Orphan]:
    """Start a process for each of `tasks`, of which none returns. Raises OSError."""
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        try:
            sys.stderr = None  # what Python says there by itself is none of the command's lines
            for task in tasks:
                pid = os.fork()
                if pid == 0:
                    task()
                os.write(writer, f"{pid} ".encode())
        finally:
            os._exit(0)
    os.close(writer)
    try:
        await_child(between, time.monotonic() + START_LIMIT)  # it may have been stopped
        said = read_pipe(reader, time.monotonic() + START_LIMIT)
    finally:
        os.close(reader)
    return [_Orphan(int(pid)) for pid in said.split()]


def _be_the_watcher(
    watch: Callable[[], None], link: socket.socket, keep_stdout: bool, keep: Sequence[int]
) -> None:
    """Watch, in this process, which ends with it; tell the front if that fails."""
    try:
        os.setsid()
        catch_all_signals()
        _hold_only({link.fileno(), *keep}, keep_stdout)
        watch()
    except BaseException as error:
        with contextlib.suppress(Exception):
            link.send(json.dumps({"t": "lost", "why": repr(error)[:1000]}).encode())
    finally:
        os._exit(0)


def _stand_in_group(link: socket.socket, front: int, command_pid: int) -> None:
    """Stand in the group of the front, in this process, which ends with it."""
    try:
        _close_all_but({link.fileno()})
        group_signals.stand_in_group(link, front, command_pid)
    finally:
        os._exit(0)


def _tidy_up(do: Callable[[], None]) -> None:
    """Do it, in this process, which ends with it and holds nothing of the command's."""
    try:
        os.setsid()
        catch_all_signals()
        _close_all_but(set())
        for _ in range(3):
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free
        do()
    finally:
        os._exit(0)


def _hold_only(keep: set[int], keep_stdout: bool) -> None:
    """Close what only the command is to hold, all but stderr: a pipe ends when the command closes
    it, not when we do.
    """
    _close_all_but({0, 1, 2, *(one for one in keep if one >= 0)})
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        if not keep_stdout:
            os.dup2(null, 1)
        if null > 2:
            os.close(null)


def _close_all_but(keep: set[int]) -> None:
    try:
        found = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        found = list(range(1024))
    for descriptor in found:
        if descriptor not in keep:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _reap_orphans(command_pid: int) -> None:
    """As the first process of a container: reap what has no other parent any more."""
    if os.getpid() != 1:
        return
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    for _ in range(1000):
        found = os.waitid(os.P_ALL, 0, flags)
        if found is None or found.si_pid == command_pid:
            return
        os.waitpid(found.si_pid, os.WNOHANG)


def _stop_by(number: int) -> None:
    """Stop as the command was stopped: our shell tells by which signal."""
    if number in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})  # it stops here
        signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    else:
        os.kill(os.getpid(), signal.SIGSTOP)


# ---- the terminal --------------------------------------------------------------------------------


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _is_in_front() -> bool:
    """Return whether our group is what the terminal's keys are for."""
    with contextlib.suppress(OSError):
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
        try:
            return os.tcgetpgrp(terminal) == os.getpgrp()
        finally:
            os.close(terminal)
    return False


def _reads_keys() -> bool:
    """Return whether a program reads single keys of our terminal, and Ctrl-C is one of them for it
    (a debugger's prompt, an editor).
    """
    with contextlib.suppress(Exception):
        import termios

        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
        try:
            return not termios.tcgetattr(terminal)[3] & termios.ICANON
        finally:
            os.close(terminal)
    return False
