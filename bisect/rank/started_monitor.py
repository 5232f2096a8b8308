"""Reach the monitor of this node: connect to it, or start it if nobody has.

The monitor is another process because a rank may hold the GIL, be stopped, or sit in the kernel;
a thread in the rank would be stuck with it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .place import FOLDER_VARIABLE, JOB_VARIABLE, Place
from .watched.names import CLAIM_VARIABLE, PACKAGE_VARIABLE

LOCK_LIMIT = 5.0  # seconds that another rank may take to start the monitor
LONGEST_PATH = 100  # bytes: sun_path has 108 (unix(7))
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass(frozen=True)
class Python:
    """The interpreter that a monitor runs in, with the folders that it imports from."""

    executable: str
    path: tuple[str, ...]


@dataclass(frozen=True)
class Reached:
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


def reach(
    place: Place,
    *,
    keep: Sequence[int] = (),
    answers: bool = False,
    successor: bool = False,
    python: Python | None = None,
) -> Reached:
    """Return a connection to this node's monitor, which is started unless there is one.

    One that is started keeps the descriptors `keep` open, and our stdout if it `answers` there
    (--json); it runs in `python`, by default in ours. A `successor` goes on from what the monitor
    before it wrote down. Raises OSError if there is no place for a socket, or if no monitor can be
    started.
    """
    known = os.environ.get(FOLDER_VARIABLE) if place.joined or successor else None
    folders = [known] if known else list(_folders(place))
    with _alone(place.job):
        for folder in folders:
            connection = _connect(folder)
            if connection is not None:
                return Reached(connection, folder)
        if successor:
            _only_once(folders[0])
        folder, pipe = _start(folders, answers, keep, python or Python(sys.executable, _path()))
        connection = _connect(folder)
        if connection is None:
            os.close(pipe)
            shutil.rmtree(folder, ignore_errors=True)
            raise OSError("the monitor was started and is already gone")
        return Reached(connection, folder, pipe)


def _folders(place: Place) -> Iterator[str]:
    """Yield where the folder of this node's part of the job may be."""
    for base in (os.environ.get("XDG_RUNTIME_DIR"), "/dev/shm", os.environ.get("TMPDIR"), "/tmp"):
        folder = os.path.join(base or "", f"hangbisect-{place.job}")
        if base and len(os.fsencode(os.path.join(folder, "socket"))) <= LONGEST_PATH:
            yield folder


def _only_once(folder: str) -> None:
    """Raise OSError, and leave nothing behind, if there was a successor already."""
    mark = os.path.join(folder, "taken-over")
    try:
        with open(mark, "x"):
            return
    except FileExistsError:
        shutil.rmtree(folder, ignore_errors=True)
        raise OSError("the one that took over is gone too") from None


@contextlib.contextmanager
def _alone(job: str) -> Iterator[None]:
    """Let one local rank at a time in.

    The lock is a name in the abstract socket namespace (unix(7)): it is gone with its process.
    """
    end = time.monotonic() + LOCK_LIMIT
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
        while True:
            try:
                lock.bind(f"\0hangbisect-{os.getuid()}-{job}")
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                if time.monotonic() > end:
                    raise OSError(f"another rank has been at it for {LOCK_LIMIT:.0f} s") from None
                time.sleep(0.005)
        yield


def _connect(folder: str) -> socket.socket | None:
    try:
        if not _is_ours(folder):
            return None
    except OSError:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(LOCK_LIMIT)
    try:
        connection.connect(os.path.join(folder, "socket"))
    except OSError:
        connection.close()
        return None
    return connection


def _path() -> tuple[str, ...]:
    return tuple(path for path in sys.path if isinstance(path, str))


def _start(
    folders: Sequence[str], answers: bool, keep: Sequence[int], python: Python
) -> tuple[str, int]:
    """Start the monitor as nobody's child, in a session of its own; return the folder it uses,
    and the pipe that it will read its settings from.

    It makes its folder and its socket itself, so that nothing of them is left where this rank is
    killed meanwhile. Raises OSError with the reason if it could do so nowhere.
    """
    reader, writer = os.pipe()
    settings_reader, settings_writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                _become_the_monitor(folders, settings_reader, writer, answers, keep, python)
        finally:
            os._exit(127)
    os.close(writer)
    os.close(settings_reader)
    os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as pipe:
        ready, _, _ = select.select([pipe], [], [], LOCK_LIMIT)
        said = pipe.read().decode() if ready else ""
    folder, _, why = said.partition("\n")
    if not folder:
        os.close(settings_writer)
        raise OSError(why or "the monitor did not start")
    return folder, settings_writer


def _become_the_monitor(
    folders: Sequence[str],
    settings: int,
    writer: int,
    answers: bool,
    keep: Sequence[int],
    python: Python,
) -> None:
    """Listen, say where, and become the monitor. It keeps no input, the listening socket, the pipe
    with its `settings`, our stderr for the verdict, and the pipe to the process in front, if any.
    """
    why = "no folder for its socket (XDG_RUNTIME_DIR, /dev/shm, TMPDIR, /tmp)"
    for folder in folders:
        try:
            listener = _listen(folder)
            break
        except OSError as error:
            why = f"no folder for its socket ({folder}: {error.strerror or error})"
    else:
        os.write(writer, f"\n{why}".encode())
        return
    os.write(writer, folder.encode())
    os.close(writer)
    start = {
        "path": python.path,
        "folder": folder,
        "listener": listener.fileno(),
        "settings": settings,
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
    kept = {listener.fileno(), settings, *keep}
    _close_all_but({0, 1, 2, *kept})
    for descriptor in (0, 1, 2, *kept):
        os.set_inheritable(descriptor, True)
    os.chdir("/")
    os.execve(python.executable, command, variables)


def _listen(folder: str) -> socket.socket:
    """Listen in `folder`, made for this user alone. Raises OSError if that is not possible."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    if not _is_ours(folder):
        raise OSError("it belongs to somebody else")
    path = os.path.join(folder, "socket")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(1024)
    return listener


def _is_ours(folder: str) -> bool:
    found = os.lstat(folder)
    return found.st_uid == os.getuid() and not found.st_mode & 0o077


def _close_all_but(keep: set[int]) -> None:
    low = 3
    for descriptor in sorted(keep - {0, 1, 2}):
        if descriptor > low:  # an empty range would be taken for all (close_range(2))
            os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))
