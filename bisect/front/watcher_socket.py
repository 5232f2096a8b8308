"""The Unix socket at which monitors tell the watcher what they hear; it is made before the command
starts.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import NamedTuple

from ..rank.our_folders import is_own_folder, make_new

FOLDER_PREFIX = "hangbisect-run-"
INTERRUPTED = "interrupted"  # beside the socket, once the command was told to end
ALL_HOSTS = "all-hosts.json"  # what the watcher has heard of hosts that no monitor sees


class WatcherSocket(NamedTuple):
    """A socket that is listened on, in a folder of its own. `path` also marks what is started."""

    folder: str
    path: str
    descriptor: int  # -1: there is none; monitors find no watcher, and go on without


def open_watcher_socket() -> WatcherSocket:
    """Listen in a new folder. Raises OSError if there is no place for one."""
    folder = make_new(FOLDER_PREFIX, "socket")
    path = os.path.join(folder, "socket")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(path)
        listener.listen(128)
        listener.setblocking(False)
    except OSError:
        listener.close()
        remove_watcher_socket(WatcherSocket(folder, path, -1))
        raise
    return WatcherSocket(folder, path, listener.detach())


def note_interruption(path: str) -> None:
    """Create a file beside the socket at `path`: the command was told to end."""
    with contextlib.suppress(OSError):
        file = os.path.join(os.path.dirname(path), INTERRUPTED)
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))


def was_interrupted(path: str) -> bool:
    """Return whether the command, whose socket is at `path`, was told to end."""
    return os.path.exists(os.path.join(os.path.dirname(path), INTERRUPTED))


def remove_watcher_socket(made: WatcherSocket) -> None:
    """Remove the folder, unless files of a run had to stay in it."""
    with contextlib.suppress(OSError):
        os.unlink(made.path)
    for name in (INTERRUPTED, ALL_HOSTS):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(made.folder, name))
    with contextlib.suppress(OSError):
        for name in os.listdir(made.folder):  # numbers that its jobs have (monitor/job.py)
            if name.startswith("job-"):
                os.unlink(os.path.join(made.folder, name))
        os.rmdir(made.folder)


def remove_deserted_sockets(made: WatcherSocket) -> None:
    """Remove the folders that were left beside ours by processes killed before they could."""
    base = os.path.dirname(made.folder)
    for name in os.listdir(base) if base else ():
        other = os.path.join(base, name)
        path = os.path.join(other, "socket")
        # Where there is no socket yet, another run is just making it.
        if name.startswith(FOLDER_PREFIX) and other != made.folder and os.path.exists(path):
            with contextlib.suppress(OSError):
                if is_own_folder(other) and not _is_listened_on(other, socket.SOCK_SEQPACKET):
                    remove_watcher_socket(WatcherSocket(other, path, -1))


def is_deserted(folder: str) -> bool:
    """Return whether `folder` is one of ours in which no monitor listens any more."""
    with contextlib.suppress(OSError):
        return is_own_folder(folder) and not _is_listened_on(folder, socket.SOCK_STREAM)
    return False


def _is_listened_on(folder: str, kind: socket.SocketKind) -> bool:
    """Return whether a process listens on the socket in `folder`. Raises OSError where that is not
    known.
    """
    with socket.socket(socket.AF_UNIX, kind) as asking:
        asking.setblocking(False)
        try:
            asking.connect(os.path.join(folder, "socket"))
        except (ConnectionRefusedError, FileNotFoundError):  # no process does any more (connect(2))
            return False
    return True
