"""Reach the monitor of this node: connect to it, or start it if nobody has.

The monitor is another process because a rank may hold the GIL, be stopped, or sit in the kernel;
a thread in the rank would be stuck with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .place import FOLDER_VARIABLE, JOB_VARIABLE, Place

LOCK_LIMIT = 5.0  # seconds that another rank may take to start the monitor
_LONGEST_PATH = 100  # bytes: sun_path has 108 (unix(7))
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass(frozen=True)
class Reached:
    """A connection to the monitor; `started` if it was we who started it."""

    connection: socket.socket
    folder: str
    started: bool


def reach(place: Place, settings: dict[str, Any], successor: bool = False) -> Reached:
    """Return a connection to this node's monitor.

    `settings` go to the monitor if it is started here. A `successor` goes on from what the monitor
    before it wrote down. Raises OSError if there is no place for a socket, or if no monitor can be
    started.
    """
    folder = os.environ.get(FOLDER_VARIABLE) if place.joined or successor else None
    folder = folder or _make_folder(place)
    with _alone_in(folder):
        connection = _connect(folder)
        if connection is not None:
            return Reached(connection, folder, started=False)
        if successor:
            _only_once(folder)
        listener = _listen(folder)
        with listener:
            _start(listener, folder, {**settings, "successor": successor})
        connection = _connect(folder)
        if connection is None:
            _tidy(folder)
            raise OSError("the monitor was started and is already gone")
        return Reached(connection, folder, started=True)


def _make_folder(place: Place) -> str:
    """Return the folder of this node's part of the job, made for this user alone."""
    why = "XDG_RUNTIME_DIR, /dev/shm, TMPDIR and /tmp"
    for base in (os.environ.get("XDG_RUNTIME_DIR"), "/dev/shm", os.environ.get("TMPDIR"), "/tmp"):
        folder = os.path.join(base or "", f"hangbisect-{place.job}")
        if not base or len(os.fsencode(os.path.join(folder, "socket"))) > _LONGEST_PATH:
            continue
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o700)
            found = os.lstat(folder)
            if found.st_uid == os.getuid() and not found.st_mode & 0o077:
                with open(os.path.join(folder, "lock"), "a"):
                    return folder
        except OSError as error:
            why = f"{folder}: {error.strerror}"
    raise OSError(f"no folder for its socket ({why})")


def _only_once(folder: str) -> None:
    """Raise OSError, and leave nothing behind, if there was a successor already."""
    mark = os.path.join(folder, "taken-over")
    try:
        with open(mark, "x"):
            return
    except FileExistsError:
        shutil.rmtree(folder, ignore_errors=True)
        raise OSError("the one that took over is gone too") from None


def _tidy(folder: str) -> None:
    """Remove a folder that no monitor will; what a monitor wrote in it stays."""
    for name in ("socket", "lock"):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))
    with contextlib.suppress(OSError):
        os.rmdir(folder)


@contextlib.contextmanager
def _alone_in(folder: str) -> Iterator[None]:
    """Let one local rank at a time in."""
    end = time.monotonic() + LOCK_LIMIT
    with open(os.path.join(folder, "lock"), "a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise OSError(
                        f"another rank holds {file.name} for {LOCK_LIMIT:.0f} s"
                    ) from None
                time.sleep(0.005)
        yield


def _connect(folder: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(LOCK_LIMIT)
    try:
        connection.connect(os.path.join(folder, "socket"))
    except OSError:
        connection.close()
        return None
    return connection


def _listen(folder: str) -> socket.socket:
    path = os.path.join(folder, "socket")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(1024)
    return listener


def _start(listener: socket.socket, folder: str, settings: dict[str, Any]) -> None:
    """Start the monitor as nobody's child, in a session of its own, with only these descriptors:
    no input, the listening socket, our stderr for the verdict (and stdout for --json), and the
    pipe to the process in front, if there is one.
    """
    settings = {**settings, "path": sys.path, "folder": folder}
    settings["listener"] = listener.fileno()
    command = [sys.executable, "-I", _OURS, "monitor", json.dumps(settings)]
    variables = dict(os.environ)
    for name in (FOLDER_VARIABLE, JOB_VARIABLE):
        variables.pop(name, None)
    keep = {listener.fileno(), *settings.get("keep", ())}
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        if not settings.get("json"):
            os.dup2(null, 1)
        _close_all_but({0, 1, 2, *keep})
        for descriptor in (0, 1, 2, *keep):
            os.set_inheritable(descriptor, True)
        os.chdir("/")
        os.execve(sys.executable, command, variables)
    finally:
        os._exit(127)


def _close_all_but(keep: set[int]) -> None:
    low = 3
    for descriptor in sorted(keep - {0, 1, 2}):
        if descriptor > low:  # an empty range would be taken for all (close_range(2))
            os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))
