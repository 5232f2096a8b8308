"""Reach the monitor of this node: connect to it, or start it if no rank has.

The monitor is another process because a rank may hold the GIL, be stopped, or sit in the kernel;
a thread in the rank would be stuck with it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..base.error_guard import raise_if_of_the_job
from ..base.forks import await_child, read_pipe, why_no_room, withstand_signals
from ..base.loading import DelayLimits
from ..base.place import FOLDER_VARIABLE, JOB_VARIABLE, Place, monitor_of
from ..base.variables import CLAIM_VARIABLE, OUTER_VARIABLE, PACKAGE_VARIABLE
from .our_folders import LONGEST_SOCKET_PATH, OWNER_LINK, bases, is_own_folder, make

LOCK_LIMIT = 5.0  # seconds that another rank may take to start the monitor
PAUSE = 0.005  # seconds
_MOST_DESCRIPTORS = 1 << 16  # closed one by one, where they cannot be listed
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Interpreter(NamedTuple):
    """The interpreter that a monitor runs in, with the folders that it imports from."""

    executable: str
    path: tuple[str, ...]
    delay: DelayLimits | None = None  # before it is loaded: no rank waits for it


class MonitorConnection(NamedTuple):
    """A connection to the monitor. If it was we who started it, `settings_pipe` is where it reads
    its settings: it comes up while the rank still reads its arguments.
    """

    connection: socket.socket
    folder: str
    settings_pipe: int | None = None

    def give(self, settings: dict[str, Any]) -> None:
        """Give the monitor its settings, if we started it. Without them it ends."""
        if self.settings_pipe is not None:
            with os.fdopen(self.settings_pipe, "w", encoding="utf-8") as pipe:
                json.dump(settings, pipe)


def connect_to_monitor(
    place: Place,
    *,
    keep: Sequence[int] = (),
    answers: bool = False,
    successor: bool = False,
    python: Interpreter | None = None,
) -> MonitorConnection:
    """Return a connection to this node's monitor, which is started unless there is one.

    One that is started keeps the descriptors `keep` open, and our stdout if it `answers` there
    (--json); it runs in `python`, by default in ours. A `successor` goes on from what the monitor
    before it wrote down. Raises OSError if there is no place for a socket, or if no monitor can be
    started.
    """
    known = os.environ.get(FOLDER_VARIABLE) if place.joined or successor else None
    folders = [known] if known else list(_folders(place))
    with _hold_lock(monitor_of(place)):
        for folder in folders:
            connection = _connect_to_folder(folder)
            if connection is not None:
                return MonitorConnection(connection, folder)
        if successor:
            _claim_succession(folders[0])
        folder, pipe = _start_monitor(
            folders, answers, keep, python or Interpreter(sys.executable, _import_path())
        )
        connection = _connect_to_folder(folder)
        if connection is None:
            os.close(pipe)
            shutil.rmtree(folder, ignore_errors=True)
            raise OSError("the monitor was started and is already gone")
        return MonitorConnection(connection, folder, pipe)


def _folders(place: Place) -> Iterator[str]:
    """Yield where the folder of this node's part of the job may be."""
    for base in bases():
        folder = os.path.join(base, f"hangbisect-{monitor_of(place)}")
        if len(os.fsencode(os.path.join(folder, "socket"))) <= LONGEST_SOCKET_PATH:
            yield folder


def _claim_succession(folder: str) -> None:
    """Raise OSError, and leave nothing behind, if there was a successor already."""
    if not is_own_folder(folder):
        raise OSError(f"{folder} is not ours alone any more")
    mark = os.path.join(folder, "taken-over")
    try:
        with open(mark, "x"):
            return
    except FileExistsError:
        shutil.rmtree(folder, ignore_errors=True)
        raise OSError("the one that took over is gone too") from None


@contextlib.contextmanager
def _hold_lock(job: str) -> Iterator[None]:
    """Let one local rank at a time in. Raises OSError if our turn does not come.

    The lock is an flock on a folder of ours alone, which no other user can open: it ends with its
    process, and no other user can hold it. (A name in the abstract namespace of Unix sockets can be
    taken by any user.) The folder is there only as long as a rank wants the lock.
    """
    end = time.monotonic() + LOCK_LIMIT
    while True:
        opened = _open_lock(job)
        if opened is not None:
            folder, descriptor = opened
            try:
                if _try_lock(descriptor, folder):
                    try:
                        yield
                    finally:
                        with contextlib.suppress(OSError):  # before the lock is given back
                            os.rmdir(folder)
                    return
            finally:
                os.close(descriptor)
        if time.monotonic() > end:
            raise OSError(f"another rank has been at it for {LOCK_LIMIT:.0f} s")
        time.sleep(PAUSE)


def _open_lock(job: str) -> tuple[str, int] | None:
    """Return the folder of the lock, made unless it is there, and a descriptor of it; None where
    the rank that had the lock has just removed the folder. Another base is no answer to that: two
    ranks with a lock each would start a monitor each.
    """
    why = OSError(errno.ENOENT, "no folder for a lock")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    for base in bases():
        folder = os.path.join(base, f"hangbisect-{job}.lock")
        try:
            make(folder)
            return folder, os.open(folder, flags)
        except FileNotFoundError as error:
            if os.path.isdir(base):
                return None
            why = error
        except OSError as error:
            raise_if_of_the_job(error)
            why = error
    raise why


def _try_lock(descriptor: int, folder: str) -> bool:
    """Lock what was opened, and return whether it is still what `folder` names."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ours, named = os.fstat(descriptor), os.lstat(folder)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EINTR, errno.ENOENT):
            return False
        raise
    is_same = (ours.st_dev, ours.st_ino) == (named.st_dev, named.st_ino)
    return is_same and ours.st_uid == os.geteuid()


def _connect_to_folder(folder: str) -> socket.socket | None:
    try:
        if not is_own_folder(folder):
            return None
    except OSError:
        return None
    connection = _stream_socket()
    connection.settimeout(LOCK_LIMIT)
    try:
        connection.connect(os.path.join(folder, "socket"))
    except OSError as error:
        connection.close()
        raise_if_of_the_job(error)
        return None
    return connection


def _stream_socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    return socket.socket(fileno=_raise_descriptor(made.detach()))


def _raise_descriptor(descriptor: int) -> int:
    """Return it, or one above 2 in its place: what a job without stdin, stdout or stderr writes
    there must not come to us.
    """
    if descriptor > 2:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(descriptor)


def _import_path() -> tuple[str, ...]:
    return tuple(path for path in sys.path if isinstance(path, str))


def _start_monitor(
    folders: Sequence[str], answers: bool, keep: Sequence[int], python: Interpreter
) -> tuple[str, int]:
    """Start the monitor, as no child of this rank and in a session of its own; return the folder
    it uses, and the pipe that it will read its settings from.

    It makes its folder and its socket itself, so that nothing of them is left where this rank is
    killed meanwhile. Raises OSError with the reason if it could do so nowhere.
    """
    if why := why_no_room():
        raise OSError(why)
    pipes: list[int] = []
    try:
        for _ in range(2):
            pipes += os.pipe()
        pipes[:] = map(_raise_descriptor, pipes)
        reader, writer, settings_reader, settings_writer = pipes
        child = _fork()
        if child == 0:
            try:
                os.setsid()
                if _fork() == 0:
                    _become_the_monitor(folders, settings_reader, writer, answers, keep, python)
            finally:
                os._exit(127)
        end = time.monotonic() + LOCK_LIMIT
        for descriptor in (writer, settings_reader):
            pipes.remove(descriptor)
            os.close(descriptor)
        await_child(child, end)
        folder, _, why = read_pipe(reader, end).partition("\n")
        if folder and why:
            shutil.rmtree(folder, ignore_errors=True)
        if why or not folder:
            raise OSError(why or "the monitor did not start")
        pipes.remove(settings_writer)
        return folder, settings_writer
    finally:
        for descriptor in pipes:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _fork() -> int:
    # Python warns of a fork in a process with threads. What our child does until it is another
    # program takes no lock that a thread may have held.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _become_the_monitor(
    folders: Sequence[str],
    settings: int,
    writer: int,
    answers: bool,
    keep: Sequence[int],
    python: Interpreter,
) -> None:
    """Listen, say where, and become the monitor. It keeps no input, the listening socket, the pipe
    with its `settings`, our stderr for the verdict, and the pipe to the process in front, if any.

    `writer` is closed when it has become the monitor; what did not work is said there before that.
    """
    try:
        withstand_signals()
        folder, listener = _listen_anywhere(folders)
        os.write(writer, os.fsencode(folder))
        start = {
            "path": python.path,
            "folder": folder,
            "listener": listener.fileno(),
            "settings": settings,
            "delay": python.delay,
        }
        command = [python.executable, "-I", "-S", _OURS, "monitor", json.dumps(start)]
        variables = dict(os.environ)
        # Without the last two what it starts is no rank.
        for name in (FOLDER_VARIABLE, JOB_VARIABLE, PACKAGE_VARIABLE, CLAIM_VARIABLE):
            variables.pop(name, None)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        if not answers:
            os.dup2(null, 1)
        if not _is_open(2):
            os.dup2(null, 2)
        kept = {listener.fileno(), settings, *keep}
        _close_all_but({0, 1, 2, writer, *kept})
        for descriptor in (0, 1, 2, *kept):
            with contextlib.suppress(OSError):  # 2: the job may run without stderr
                os.set_inheritable(descriptor, True)
        os.chdir("/")
        os.execve(python.executable, command, variables)
    except OSError as error:
        os.write(writer, f"\n{error.strerror or error}".encode())


def _listen_anywhere(folders: Sequence[str]) -> tuple[str, socket.socket]:
    """Listen in the first of `folders` where that is possible; return the folder and the socket.

    Raises OSError with the reason.
    """
    why = "no folder for its socket (/dev/shm, TMPDIR, /tmp, XDG_RUNTIME_DIR)"
    for folder in folders:
        try:
            return folder, _listen(folder)
        except OSError as error:
            why = f"no folder for its socket ({folder}: {error.strerror or error})"
    raise OSError(why)


def _listen(folder: str) -> socket.socket:
    """Return a socket that listens in `folder`, made for this user alone. Raises OSError."""
    make(folder)
    if mark := os.environ.get(OUTER_VARIABLE):  # for the clean-up, if no monitor serves it
        with contextlib.suppress(OSError):  # there was a monitor before
            os.symlink(mark, os.path.join(folder, OWNER_LINK))
    path = os.path.join(folder, "socket")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = _stream_socket()
    listener.bind(path)
    listener.listen(1024)
    return listener


def _is_open(descriptor: int) -> bool:
    """Return whether a standard stream is open: what is closed on exec is a file of ours, or of a
    library's, that got the number of one that was not.
    """
    try:
        return os.get_inheritable(descriptor)
    except OSError:
        return False


def _close_all_but(keep: set[int]) -> None:
    """Close all descriptors but these. Not by their highest possible number: of a container that
    may be 10^9, and without close_range(2) each is closed by a call of its own.
    """
    try:
        here = {int(name) for name in os.listdir("/proc/self/fd")}
    except (OSError, ValueError):
        most = os.sysconf("SC_OPEN_MAX")
        here = set(range(min(most, _MOST_DESCRIPTORS) if most > 0 else _MOST_DESCRIPTORS))
    for descriptor in here - keep:
        with contextlib.suppress(OSError):
            os.close(descriptor)
