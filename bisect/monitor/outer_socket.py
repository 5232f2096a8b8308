"""Where the process around a launcher hears of monitors, signals, and the ends of others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from types import TracebackType

from ..errors import UsageError
from ..rank.started_monitor import LONGEST_PATH

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class OuterSocket:
    """A socket in a folder of its own, which is removed. Needs a running loop."""

    def __init__(self, hear: Callable[[bytes], None]) -> None:
        """`hear` gets each message. Raises UsageError if there is no place for a socket."""
        self._hear = hear
        self._loop = asyncio.get_running_loop()
        self._descriptors: list[int] = []
        self._connections: list[socket.socket] = []
        self.folder = _folder()
        self.path = os.path.join(self.folder, "socket")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.setblocking(False)
        self._listener.bind(self.path)
        self._listener.listen(128)

    def __enter__(self) -> OuterSocket:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Close everything, and remove the folder unless the files of a run had to stay in it."""
        for number in SIGNALS:
            self._loop.remove_signal_handler(number)
        for one in (self._listener, *self._connections):
            self._loop.remove_reader(one)
            one.close()
        for descriptor in self._descriptors:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(self.path)
            os.rmdir(self.folder)

    def listen(
        self,
        launcher: int,
        ended: Callable[[], None],
        starter: int | None,
        stop: Callable[[], None],
        signalled: Callable[[signal.Signals], None],
    ) -> None:
        """Call `ended` when the launcher has, `stop` when who started us is gone, `signalled` for
        each signal.
        """
        self._loop.add_reader(self._listener, self._accept)
        self._once(os.pidfd_open(launcher), ended)
        if starter is not None:
            self._once(os.dup(starter), stop)
        for number in SIGNALS:
            self._loop.add_signal_handler(number, signalled, number)

    def _once(self, descriptor: int, call: Callable[[], None]) -> None:
        def readable() -> None:
            self._loop.remove_reader(descriptor)
            call()

        self._descriptors.append(descriptor)
        self._loop.add_reader(descriptor, readable)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            self._connections.append(connection)
            self._loop.add_reader(connection, self._read, connection)

    def _read(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(connection)
            return
        with contextlib.suppress(ValueError, KeyError, TypeError):  # cut, or a stranger's
            self._hear(data)


def _folder() -> str:
    name = f"hangbisect-run-{os.getpid()}-{time.monotonic_ns() % 10**6}"
    for base in (os.environ.get("XDG_RUNTIME_DIR"), "/dev/shm", os.environ.get("TMPDIR"), "/tmp"):
        folder = os.path.join(base or "", name)
        if base and len(os.fsencode(os.path.join(folder, "socket"))) <= LONGEST_PATH:
            with contextlib.suppress(OSError):
                os.mkdir(folder, 0o700)
                return folder
    raise UsageError(
        "there is no folder for a socket: XDG_RUNTIME_DIR, /dev/shm, TMPDIR and /tmp cannot be "
        "written",
        "Set TMPDIR to a folder that you may write in.",
    )
