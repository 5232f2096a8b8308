"""A rank's link to the monitor of its node: JSON lines over a Unix socket.

Nothing here waits without a limit, and a rank whose monitor is gone goes on without one.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Any

from .place import FOLDER_VARIABLE, JOB_VARIABLE, Place
from .started_monitor import Python, Reached, reach

SEND_LIMIT = 2.0  # seconds for the monitor to make room for a message
SILENCE_LIMIT = 30.0  # seconds without a word from the monitor at a barrier
WELCOME_LIMIT = 10.0  # seconds for a monitor to start and answer
SUCCESSION_TRIES = 3
GOODBYE_LIMIT = 3.0  # seconds for the verdict to be written when a rank leaves

Message = dict[str, Any]
# Where the rank is, and where its log of collectives is, for a new monitor.
_STATE = ("ring", "enter", "phase", "reached", "finished", "quiet")


class Link:
    """The connection, with what the monitor needs to know again should it be replaced."""

    def __init__(self, place: Place, hello: Message, say: Callable[[str], None]) -> None:
        """`hello` introduces the rank, to the first monitor and to its successor."""
        self.place = place
        self.welcome: Message = {}
        self.alone = False  # no monitor: the run goes on without
        self.lockstep = True
        self._hello = hello
        self._say = say
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._pid = os.getpid()
        self._successions = 0
        self.python: Python | None = None  # for a monitor that we start later; None: our own
        self.ends_quietly = False  # a monitor that is gone before the goodbye is not missed
        self._goodbye: Message = {"status": 1, "error": "", "finished": False}
        self._left = False
        self._latest: dict[str, Message] = {}  # what a new monitor must be told again
        self.connected: Callable[[str], None] = lambda folder: None
        self.lost: Callable[[], None] = lambda: None

    # ---- coming and going -----------------------------------------------------------------

    def open(self, found: Reached | OSError, settings: Message) -> None:
        """Talk to the monitor that was `found` (or go on without); `settings` are for the one
        that we started, and for any that we start later.
        """
        self._settings = settings
        if isinstance(found, OSError):
            self._give_up(f"no monitor: {found}")
            return
        self._socket = found.connection
        with contextlib.suppress(OSError):  # it was killed meanwhile: our hello starts another
            found.give(settings)
        os.environ[FOLDER_VARIABLE] = found.folder
        os.environ[JOB_VARIABLE] = self.place.job
        self._send({"t": "hello", **self._hello})
        self.connected(found.folder)
        atexit.register(self.goodbye)
        os.register_at_fork(after_in_child=self._close_in_child)

    def await_welcome(self, limit: float = WELCOME_LIMIT) -> None:
        """Read the monitor's answer to hello: the run folder and the job's temporary folder."""
        if "run_dir" not in self.welcome and not self.alone:
            self.welcome.update(self._await("welcome", limit) or {})
            if "run_dir" not in self.welcome and not self.alone:
                self._give_up(f"the monitor did not answer in {limit:.0f} s")

    def leaving(
        self, status: int | None, error: str = "", finished: bool = False, **more: Any
    ) -> None:
        """Note what the goodbye will say (status None: not known); it is said when the interpreter
        ends.
        """
        self._goodbye = {"status": status, "error": error, "finished": finished, **more}
        if finished:
            self.tell("finished")

    def goodbye(self) -> None:
        """Say goodbye and wait until the monitor has written what it has to write."""
        if self._left or os.getpid() != self._pid or self._socket is None:
            return
        self._left = True
        for _ in range(2):  # once more if a new monitor had to be started meanwhile
            generation = self._successions
            self._send({"t": "bye", **self._goodbye})
            if self._await("written", GOODBYE_LIMIT) or self._successions == generation:
                break
        with contextlib.suppress(OSError):  # empty unless something of the job is still there
            os.rmdir(self.welcome.get("tmp", ""))

    def _close_in_child(self) -> None:
        # A forked worker inherits the socket; were it open there, our end would not be seen.
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self.alone = True

    # ---- talking --------------------------------------------------------------------------

    def tell(self, kind: str, **fields: Any) -> None:
        """Tell the monitor something that needs no answer."""
        message = {"t": kind, **fields}
        if kind in _STATE:
            self._latest[kind] = message
        self._send(message)

    def mention(self, kind: str, **fields: Any) -> None:
        """Tell the monitor something that may get lost, from any thread. Never waits."""
        connection = self._socket
        if connection is None or os.getpid() != self._pid:
            return
        data = json.dumps({"t": kind, "at": time.monotonic(), **fields}).encode() + b"\n"
        # One write, which a Unix socket takes whole or not at all if it is as short as this.
        with contextlib.suppress(OSError):
            os.write(connection.fileno(), data)

    def close(self) -> None:
        """Talk no more, and say no goodbye: this process speaks for another rank, or for none."""
        self._left = True
        self._drop()

    def listen(self) -> None:
        """Heed what the monitor has said meanwhile. Does not wait."""
        self._await("nothing", 0.0)

    def hold(self, kind: str, **fields: Any) -> None:
        """Tell the monitor that we wait, and wait until it lets us go or says nothing any more."""
        self._send({"t": kind, **fields})
        while not self.alone:
            generation = self._successions
            answer = self._await("go", SILENCE_LIMIT)
            if answer is not None:
                return
            if self._successions != generation:  # a new monitor does not know that we wait
                self._send({"t": kind, **fields})
            elif not self.alone:
                self._give_up(f"the monitor has been silent for {SILENCE_LIMIT:.0f} s")

    def _send(self, message: Message) -> None:
        if self._socket is None or os.getpid() != self._pid:
            return
        message.setdefault("at", time.monotonic())
        data = json.dumps(message, default=str).encode() + b"\n"
        try:
            self._socket.settimeout(SEND_LIMIT)
            self._socket.sendall(data)
        except TimeoutError:
            self._give_up(f"the monitor took no message for {SEND_LIMIT:.0f} s")
        except OSError:
            if self._succeed():
                self._send(message)

    def _await(self, kind: str, limit: float) -> Message | None:
        """Return the next message of `kind`; None after `limit` seconds of silence or a new
        monitor. Other messages are heeded on the way.
        """
        end = time.monotonic() + limit
        while self._socket is not None:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                message: Message = json.loads(line)
                if message["t"] == kind:
                    return message
                self._heed(message)
                end = time.monotonic() + limit
                continue
            ready, _, _ = select.select([self._socket], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return None
            try:
                data = self._socket.recv(65536)
            except OSError:
                data = b""
            if not data:
                self._succeed()
                return None
            self._buffer += data
        return None

    def _heed(self, message: Message) -> None:
        if message["t"] == "say":
            self._say(message["text"])
        elif message["t"] == "observe":
            self.lockstep = False
        elif message["t"] == "learn":
            self.welcome.update(message)
        elif message["t"] == "welcome":
            self.welcome = {**message, **self.welcome}

    # ---- when the monitor is gone -----------------------------------------------------------

    def _succeed(self) -> bool:
        """Start a successor of a monitor that died, once; return whether we have one."""
        self._drop()
        if self._left and self.ends_quietly:
            return False
        if self._successions:
            self._give_up("the monitor is gone")
            return False
        self._successions += 1
        started = False
        for _ in range(SUCCESSION_TRIES):
            try:
                found = self._find_another()
            except OSError as error:
                self._give_up(f"the monitor is gone, and no other could be started: {error}")
                return False
            started = started or found.settings_pipe is not None
            self._socket, self._buffer = found.connection, b""
            if self._introduce():
                break
        else:
            self._give_up("the monitor is gone, and the next one too")
            return False
        for message in self._latest.values():
            self._send(message)
        self.connected(found.folder)
        if started:
            self._say("The monitor died: this rank started another one")
        return self._socket is not None

    def _find_another(self) -> Reached:
        """Return another monitor: one that goes on for the first, or a first one if that ended
        before it knew anything (the rank that started it was killed).
        """
        found = reach(
            self.place,
            keep=self._settings["keep"],
            answers=self._settings["json"],
            successor=bool(self.welcome),
            python=self.python,
        )
        found.give({**self._settings, "successor": bool(self.welcome)})
        return found

    def _introduce(self) -> bool:
        """Say hello and wait for the welcome: the one that we reached may just be dying."""
        assert self._socket is not None
        hello = {"t": "hello", "at": time.monotonic(), **self._hello}
        try:
            self._socket.settimeout(WELCOME_LIMIT)
            self._socket.sendall(json.dumps(hello, default=str).encode() + b"\n")
            self._buffer = self._socket.recv(65536)
        except OSError:
            self._buffer = b""
        if not self._buffer:
            self._drop()
        return bool(self._buffer)

    def _give_up(self, why: str) -> None:
        self._drop()
        if not self.alone:
            self.alone = True
            self.lost()
            self._say(f"Going on without the watch: {why}")
        self.alone = True

    def _drop(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None
