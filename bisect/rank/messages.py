"""What a rank tells the monitor of itself: its place, the options of its watch, that it still
lives, what libraries log as a warning or worse (which often says why they wait), its signals.

Records of logging are seen as they are made (logging.setLogRecordFactory), so that no handler is
added: logging.basicConfig does nothing where there is one already.

Of Ctrl-C and SIGTERM the monitor hears at once, and looks before the rank goes: the C handler
writes the signal's number to the wake-up descriptor even while another thread, or the very call
that hangs, holds the GIL (signal.set_wakeup_fd); a Python handler alone would run only when that
call returns.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from ..base.events import Environ, Hello, Pulse, encode
from ..base.masking import mask_text
from ..base.place import OUTER_VARIABLE, Place, command_line
from ..base.typed_messages import Message
from . import began
from .after_import import after_import
from .link import Link

if TYPE_CHECKING:
    import argparse


MANY_RANKS = 16  # above this the lines of all ranks are not printed


def make_hello(place: Place, **more: Any) -> Message:
    """Return the first message of a rank, with what else it has to say of itself."""
    from ..base.environment import relevant

    hello = Hello(
        **asdict(place),
        **more,
        pid=os.getpid(),
        began=began.MONOTONIC,
        wall=began.WALL,
        error_file=os.environ.get("TORCHELASTIC_ERROR_FILE"),
        max_restarts=int(os.environ.get("TORCHELASTIC_MAX_RESTARTS") or 0),
        environment=relevant(os.environ),
        python=sys.version.split()[0],
        executable=sys.executable,
    )
    return {**encode(hello), "outer": os.environ.get(OUTER_VARIABLE, "")}


def make_watch_settings(
    args: argparse.Namespace, place: Place, environ: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """Return the settings that are the same whatever the ranks run."""
    from ..base.masking import mask_command
    from .watched.programs import words_of_start

    return {
        "command": mask_command(command_line(place, words_of_start())),
        "folder_of_start": os.getcwd(),
        "folder_for_temporary_files": environ.get("TMPDIR") or "/tmp",
        "timeout": dict(args.timeout),
        "stall": args.stall,
        "slow_limit": args.slow_limit,
        "limit": args.limit,
        "past": args.past,
        "known_hang": args.known_hang,
        "run_dir": args.run_dir,
        "plain": args.plain,
        "nodes": args.nodes,
        "on_terminal": os.isatty(1),
        "place": asdict(place),
    }


PULSE_EVERY = 1.0  # seconds between two words of a training that goes on


class Heartbeat:
    """Tells only what is new."""

    def __init__(self, link: Link) -> None:
        """Nothing has been told yet."""
        self._link = link
        self._environ: dict[str, str] = {}
        self._environ_before: dict[str, str] = {}
        self._pulsed = 0.0

    def pulse(self, step: int) -> None:
        """Tell that training goes on, unless that was told just now."""
        now = time.monotonic()
        if now - self._pulsed >= PULSE_EVERY:
            self._pulsed = now
            self._link.tell(Pulse(step=step))

    def environment(self) -> None:
        """Tell what changed in the environment."""
        # /proc/PID/environ never shows what a program sets in itself (measured).
        everything = dict(os.environ)
        if everything == self._environ_before:
            return
        self._environ_before = everything
        from ..base.environment import relevant

        now = relevant(everything)
        changed = {name: value for name, value in now.items() if self._environ.get(name) != value}
        if changed:
            self._link.tell(Environ(changed=changed))
        self._environ = now


LONGEST_LOGGED = 400  # characters
_LOGGED_AT_ONCE = 20  # lines; then one is told for each second that passed
_WARNING = 30  # logging.WARNING, without importing it


class LogCapture:
    """Tells what is logged, as long as it is not too much."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell` is called with a line, from whichever thread logs it."""
        self._tell = tell
        self._allowance = float(_LOGGED_AT_ONCE)
        self._at = time.monotonic()

    def listen(self) -> None:
        """Begin, as soon as any code imports logging: never before, for it is slow to import."""
        after_import("logging", self._begin)

    def _begin(self, logging: ModuleType) -> None:
        with contextlib.suppress(Exception):
            made_before = logging.getLogRecordFactory()

            def made(*args: Any, **kwargs: Any) -> Any:
                record = made_before(*args, **kwargs)
                self._hear(record)
                return record

            logging.setLogRecordFactory(made)

    def _hear(self, record: Any) -> None:
        with contextlib.suppress(Exception):  # whatever it is: the job's logging is what counts
            if record.levelno >= _WARNING and self._is_allowed():
                line = " ".join(f"{record.name}: {record.getMessage()}".split())
                self._tell(mask_text(line)[:LONGEST_LOGGED])

    def _is_allowed(self) -> bool:
        now = time.monotonic()
        self._allowance = min(_LOGGED_AT_ONCE, self._allowance + now - self._at)
        self._at = now
        if self._allowance < 1.0:
            return False
        self._allowance -= 1.0
        return True


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
