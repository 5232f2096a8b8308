"""Ctrl-C and SIGTERM: the monitor hears of them at once, and looks before the rank goes.

The C handler writes the signal's number to the wake-up descriptor even while another thread, or
the very call that hangs, holds the GIL (signal.set_wakeup_fd); a Python handler alone would run
only when that call returns.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from types import FrameType

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOOK_LIMIT = 3.0  # seconds for the monitor's last look


class Signals:
    """The rank's signal handlers and the connection that carries the signals' numbers."""

    def __init__(self, rank: int) -> None:
        """Nothing is installed before connect()."""
        self._rank = rank
        self._pid = os.getpid()
        self._socket: socket.socket | None = None

    def connect(self, folder: str) -> None:
        """Open the connection to the monitor in `folder` and install the handlers."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(1.0)
            connection.connect(os.path.join(folder, "socket"))
            hello = {"t": "signals", "rank": self._rank, "pid": self._pid}
            connection.sendall(json.dumps(hello).encode() + b"\n")
        except OSError:
            connection.close()
            return
        connection.setblocking(False)
        first = self._socket is None
        self._socket = connection
        signal.set_wakeup_fd(connection.fileno(), warn_on_full_buffer=False)
        if first:
            os.register_at_fork(after_in_child=self._leave_to_child)
        for number in HEARD:
            # What is ignored stays ignored (nohup).
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._interrupted)

    def release(self) -> None:
        """Give the signals back: without a monitor there is no last look, and a rank stuck in a
        native call would never run a Python handler.
        """
        with contextlib.suppress(ValueError):  # not the main thread
            signal.set_wakeup_fd(-1)
            self._restore()

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        # A group's signal comes twice, from the process in front too: the second one must wait.
        signal.signal(number, signal.SIG_IGN)
        if self._socket is not None and os.getpid() == self._pid:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            poll.poll(LOOK_LIMIT * 1000)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _leave_to_child(self) -> None:
        # Only the main thread may set handlers, and a fork in another thread makes that one main.
        with contextlib.suppress(ValueError):
            signal.set_wakeup_fd(-1)
            self._restore()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _restore(self) -> None:
        for number in HEARD:
            if signal.getsignal(number) == self._interrupted:
                default = signal.default_int_handler if number == signal.SIGINT else None
                signal.signal(number, default or signal.SIG_DFL)
