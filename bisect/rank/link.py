"""A rank's link to the monitor of its node: JSON lines over a Unix socket.

Nothing here waits without a limit, and a rank whose monitor is gone goes on without one. In a
script of the user's own all waits are short, and each kind is waited for once in its life: a
monitor that takes no message within SEND_LIMIT is left, a new one is waited for SUCCESSION_LIMIT
at most, and one that is stopped (SIGSTOP) is not waited for at all.

Messages may be told from any thread, and from a handler of a signal that interrupts one: they are
queued, and sent whole, one after the other, by the thread that is sending already.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ..base.error_guard import ignore_our_errors, raise_if_of_the_job
from ..base.events import (
    Answer,
    Bye,
    Enter,
    Event,
    Finished,
    Go,
    Observe,
    Phase,
    Places,
    Quiet,
    Reached,
    RingOpened,
    Say,
    StartsRanks,
    Written,
    decode_answer,
    encode,
)
from ..base.masking import mask_ends
from ..base.place import FOLDER_VARIABLE, JOB_VARIABLE, Place, monitor_of
from ..base.proc import find_peer_pid, read_stat
from ..base.typed_messages import Message
from .monitor_connection import Interpreter, MonitorConnection, connect_to_monitor
from .ptrace_permission import PtracePermission

SEND_LIMIT = 2.0  # seconds for the monitor to make room for a message
SILENCE_LIMIT = 30.0  # seconds without a word from the monitor at a barrier
WELCOME_LIMIT = 10.0  # seconds for a monitor to start and answer
SUCCESSION_TRIES = 3
SUCCESSION_LIMIT = 5.0  # seconds for a new monitor to answer, in a script of the user's own
MOST_WORDS = 200_000  # characters of an error, and of its traceback
GOODBYE_LIMIT = 3.0  # seconds for the verdict to be written when a rank leaves
LONGEST_TEXT = 1 << 20  # characters of one value in a message: the monitor takes lines of 16 MiB
_LONGEST_LINE = 1 << 23  # bytes
_STOPPED = ("T", "t")  # proc(5) stat

# Where the rank is, and where its log of collectives is, for a new monitor.
_STATE = (RingOpened, Enter, Phase, Reached, Finished, StartsRanks, Quiet)
_Awaited = TypeVar("_Awaited", bound=Answer)


class Link:
    """The connection, with what the monitor needs to know again should it be replaced."""

    def __init__(self, place: Place, hello: Message, say: Callable[[str], None]) -> None:
        """`hello` introduces the rank, to the first monitor and to its successor."""
        self.place = place
        self.places = Places()  # as far as the monitor has told them
        self.alone = False  # no monitor: the run goes on without
        self.lockstep = True
        self._hello = hello
        self._say = say
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._ptrace_permission = PtracePermission()
        self._unsent: deque[bytes] = deque()
        self._sending = threading.Lock()
        self._is_interrupted = False  # in the middle of a message
        self._pid = os.getpid()
        self._successions = 0
        self.python: Interpreter | None = None  # for a monitor that we start later; None: our own
        self.ends_quietly = False  # a monitor that is gone before the goodbye is not missed
        self._goodbye = Bye(status=1)
        self._left = False
        self._latest: dict[type[Event], Event] = {}  # what a new monitor must be told again
        self.connected: Callable[[str], None] = lambda folder: None
        self.lost: Callable[[], None] = lambda: None

    # ---- coming and going -----------------------------------------------------------------

    def open(self, found: MonitorConnection | OSError, settings: Message) -> None:
        """Talk to the monitor that was `found` (or go on without); `settings` are for the one
        that we started, and for any that we start later.
        """
        self._settings = settings
        if monitor_of(self.place) != self.place.job:  # it may serve other jobs, and not know ours
            self._hello["settings"] = settings
        if isinstance(found, OSError):
            self._give_up(f"no monitor: {found}")
            return
        self._socket = found.connection
        self._socket.setblocking(False)
        self._ptrace_permission.allow(self._socket)
        with ignore_our_errors(OSError):  # it was killed meanwhile: our hello starts another
            found.give(settings)
        os.environ[FOLDER_VARIABLE] = found.folder
        os.environ[JOB_VARIABLE] = self.place.job
        self._send_message(self._introduction())
        self.connected(found.folder)
        atexit.register(self.goodbye)
        os.register_at_fork(after_in_child=self._close_in_child)

    def await_welcome(self) -> None:
        """Read the monitor's answer to hello: the run folder and the job's temporary folder."""
        while self.places.run_dir is None and not self.alone:
            places = self._await(Places, WELCOME_LIMIT)
            if places is not None:
                self._heed(places)
            elif not self.alone:
                self._give_up(f"the monitor did not answer in {WELCOME_LIMIT:.0f} s")

    def leaving(self, goodbye: Bye) -> None:
        """Note what the goodbye will say, without secrets; it is said when the interpreter ends."""
        text = goodbye.traceback
        self._goodbye = goodbye.replace(
            error=mask_ends(goodbye.error, MOST_WORDS),
            traceback=None if text is None else mask_ends(text, MOST_WORDS),
        )
        if goodbye.finished:
            self.tell(Finished())

    def goodbye(self) -> None:
        """Say goodbye and wait until the monitor has written what it has to write."""
        if self._left or os.getpid() != self._pid or self._socket is None:
            return
        self._left = True
        for _ in range(2):  # once more if a new monitor had to be started meanwhile
            generation = self._successions
            self._send(self._goodbye)
            limit = 0.0 if self._monitor_is_stopped() else GOODBYE_LIMIT
            if self._await(Written, limit) or self._successions == generation:
                break
        with ignore_our_errors(OSError):  # empty unless something of the job is still there
            os.rmdir(self.places.temporary or "")

    def _close_in_child(self) -> None:
        # A forked worker inherits the socket; were it open there, our end would not be seen.
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._unsent.clear()
        self._sending = threading.Lock()
        self.alone = True

    # ---- talking --------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """Tell the monitor something that needs no answer."""
        event = event.replace(at=time.monotonic())
        if isinstance(event, _STATE):
            self._latest[type(event)] = event
        self._send(event)

    def mention(self, event: Event) -> None:
        """Tell the monitor something that may get lost, from any thread. Never waits."""
        connection = self._socket
        if connection is None or os.getpid() != self._pid:
            return
        data = encode_message(encode(event.replace(at=time.monotonic())))
        if not self._sending.acquire(blocking=False):  # a part of another message may be sent
            return
        try:
            # One write, which a Unix socket takes whole or not at all if it is as short as this.
            with ignore_our_errors(OSError):
                connection.send(data, socket.MSG_DONTWAIT)
        finally:
            self._sending.release()

    def close(self) -> None:
        """Talk no more, and say no goodbye: this process speaks for another rank, or for none."""
        self._left = True
        self._drop()

    def listen(self) -> None:
        """Heed what the monitor has said meanwhile. Does not wait."""
        self._await(None, 0.0)

    def hold(self, event: Event, limit: float | None = None) -> Go | None:
        """Tell the monitor that we wait, and wait until it lets us go, says nothing any more, or
        `limit` seconds are over. Return what it said, None if it did not let us go.
        """
        self._send(event)
        end = time.monotonic() + (limit or float("inf"))
        while not self.alone and time.monotonic() < end:
            generation = self._successions
            answer = self._await(Go, SILENCE_LIMIT, end)
            if answer is not None:
                return answer
            if time.monotonic() >= end:
                break
            if self._successions != generation:  # a new monitor does not know that we wait
                self._send(event)
            elif not self.alone:
                self._give_up(f"the monitor has been silent for {SILENCE_LIMIT:.0f} s")
        return None

    def _introduction(self) -> Message:
        return {**self._hello, "at": time.monotonic()}

    def _send(self, event: Event) -> None:
        self._send_message(encode(event.replace(at=event.at or time.monotonic())))

    def _send_message(self, message: Message) -> None:
        if os.getpid() != self._pid:
            return
        if self._socket is None:
            if self._is_interrupted:
                self._give_up("a message to the monitor was interrupted")
            return
        self._unsent.append(encode_message(message))
        # Whoever sends already, in another thread or below a handler of a signal, sends this too.
        while self._unsent and self._sending.acquire(blocking=False):
            try:
                while self._unsent and self._socket is not None:
                    self._send_line(self._unsent.popleft())
            finally:
                self._sending.release()
            if self._socket is None:
                self._unsent.clear()

    def _send_line(self, line: bytes) -> None:
        try:
            is_sent = self._is_sent(line)
        except OSError as error:
            raise_if_of_the_job(error)
            if self._succeed():
                self._unsent.append(line)
            return
        if not is_sent:
            self._is_interrupted = False
            self._give_up(f"the monitor took no message for {SEND_LIMIT:.0f} s")

    def _is_sent(self, line: bytes) -> bool:
        """Return whether the monitor had room for all of a line in time. Raises OSError."""
        assert self._socket is not None
        end = time.monotonic() + SEND_LIMIT
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT)
        sent, is_whole = 0, True
        try:
            while sent < len(line):
                if not poll.poll(0):
                    left = 0.0 if self._monitor_is_stopped() else end - time.monotonic()
                    if not poll.poll(max(0.0, left) * 1000):
                        return False
                is_whole = False
                with contextlib.suppress(BlockingIOError):
                    sent += self._socket.send(line[sent:], socket.MSG_DONTWAIT)
            is_whole = True
        finally:
            if not is_whole:  # nothing more goes over it: the rest would be read as another message
                self._drop()
                self._is_interrupted = True
        return True

    def _monitor_is_stopped(self) -> bool:
        with ignore_our_errors(OSError):
            found = read_stat(find_peer_pid(self._socket)) if self._socket is not None else None
            return found is not None and found.state in _STOPPED
        return False

    def _await(
        self, kind: type[_Awaited] | None, limit: float, last: float = float("inf")
    ) -> _Awaited | None:
        """Return the next answer of `kind` (None: of none); None after `limit` seconds of silence,
        at `last` (monotonic), or with a new monitor. Other answers are heeded on the way.
        """
        end = min(last, time.monotonic() + limit)
        poll = select.poll()
        if self._socket is not None:
            poll.register(self._socket, select.POLLIN)
        while self._socket is not None:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                answer = decode_answer(json.loads(line))
                if kind is not None and isinstance(answer, kind):
                    return answer
                self._heed(answer)
                end = min(last, time.monotonic() + limit)
                continue
            if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
                return None
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                continue
            except OSError as error:
                raise_if_of_the_job(error)
                data = b""
            if not data:
                self._succeed()
                return None
            self._buffer += data
        return None

    def _heed(self, answer: Answer | None) -> None:
        if isinstance(answer, Say):
            self._say(answer.text)
        elif isinstance(answer, Observe):
            self.lockstep = False
        elif isinstance(answer, Places):
            places = {name: one for name, one in vars(answer).items() if one is not None}
            if self.places.run_dir is not None:  # what the rank wrote in it stays together
                places.pop("run_dir", None)
            self.places = self.places.replace(**places)

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
        end = time.monotonic() + (SUCCESSION_LIMIT if self.ends_quietly else WELCOME_LIMIT * 3)
        for _ in range(SUCCESSION_TRIES):
            try:
                found = self._find_another()
            except OSError as error:
                raise_if_of_the_job(error)
                self._give_up(f"the monitor is gone, and no other could be started: {error}")
                return False
            started = started or found.settings_pipe is not None
            self._socket, self._buffer = found.connection, b""
            self._is_interrupted = False
            self._ptrace_permission.allow(found.connection)
            if self._introduce(max(0.1, end - time.monotonic())):
                break
        else:
            self._give_up("the monitor is gone, and the next one too")
            return False
        for event in self._latest.values():
            self._send(event)
        self.connected(found.folder)
        if started:
            self._say("The monitor died: this rank started another one")
        return self._socket is not None

    def _find_another(self) -> MonitorConnection:
        """Return another monitor: one that goes on for the first, or a first one if that ended
        before it knew anything (the rank that started it was killed).
        """
        is_known = self.places != Places()
        found = connect_to_monitor(
            self.place,
            keep=self._settings["keep"],
            answers=self._settings["json"],
            successor=is_known,
            python=self.python and self.python._replace(delay=None),  # we wait for its answer
        )
        found.give({**self._settings, "successor": is_known})
        return found

    def _introduce(self, limit: float) -> bool:
        """Say hello and wait for the welcome: the one that we reached may just be dying."""
        assert self._socket is not None
        try:
            self._socket.settimeout(min(limit, WELCOME_LIMIT))
            self._socket.sendall(encode_message(self._introduction()))
            self._buffer = self._socket.recv(65536)
            self._socket.setblocking(False)
        except OSError as error:
            raise_if_of_the_job(error)
            self._buffer = b""
        if not self._buffer:
            self._drop()
        return bool(self._buffer)

    def _give_up(self, why: str) -> None:
        self._drop()
        self._is_interrupted = False
        if not self.alone:
            self.alone = True
            self.lost()
            self._say(f"Going on without the watch: {why}")
        self.alone = True

    def _drop(self) -> None:
        if self._socket is not None:
            with ignore_our_errors(OSError):
                self._socket.close()
            self._socket = None


def encode_message(message: Message) -> bytes:
    """Return a message as the monitor reads it: what it would not take is cut, and says so."""
    line = json.dumps(message, default=str).encode() + b"\n"
    if len(line) <= _LONGEST_LINE:
        return line
    return json.dumps(_cut_texts(message), default=str).encode() + b"\n"


def _cut_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _cut_texts(one) for name, one in value.items()}
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        left_out = len(value) - LONGEST_TEXT
        return f"{value[:LONGEST_TEXT]}\n({left_out} more characters are left out)"
    return value
