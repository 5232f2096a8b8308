"""Reads what ranks send before the monitor is loaded: while they start they need nothing of it.

What serves connections and judges a job takes a tenth of a second of a processor to import. Where
each processor has a rank that starts, the start of the job takes that longer. So the monitor of a
script of the user's own listens with this file alone for a while, and hands over what it got.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
from typing import NamedTuple

from ..base.events import Arrive, Await, Bye, Event, Hello, RingOpened, decode
from ..base.loading import DelayLimits, LoadDelay
from ..rank.collective_records import open_ring

_MOST = 1 << 20  # bytes on one connection: who says more than that trains already
_CHUNK = 1 << 16


class EarlyMessages(NamedTuple):
    """What a rank has sent on a connection so far: these bytes can be read from there no more."""

    connection: socket.socket
    said: bytes


class Heard(NamedTuple):
    """What came while nothing was loaded."""

    words: list[EarlyMessages]
    rings: dict[tuple[int, int], int]  # descriptors, by pid and the descriptor there
    is_needed: bool  # the monitor, by a rank, and at once


def hear_early_messages(listener: int, limits: DelayLimits) -> Heard:
    """Take connections and read them, until a rank needs the monitor (it ends or is about to, waits
    for an answer, or says much), or the delay is over. What fails, for the want of descriptors or
    memory, ends this as well, and what was heard is kept.
    """
    with socket.socket(fileno=os.dup(listener)) as listening:  # the listener itself stays open
        reader, delay = _EarlyReader(listening), LoadDelay(limits)
        try:
            while not reader.is_needed and (seconds := delay.next_wait()):
                reader.listen(seconds)
        except (OSError, MemoryError):
            reader.is_needed = True
    words = [EarlyMessages(one.connection, bytes(one.said)) for one in reader.speakers.values()]
    return Heard(words, reader.rings, reader.is_needed)


class _Speaker:
    """A connection, and what was said on it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.said = bytearray()
        self.understood = 0  # bytes
        self.pid = 0


class _EarlyReader:
    """The connections that are read before the monitor is loaded."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._listening.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._listening, select.POLLIN)
        self.speakers: dict[int, _Speaker] = {}  # by descriptor
        self.rings: dict[tuple[int, int], int] = {}
        self.is_needed = False

    def listen(self, seconds: float) -> None:
        """Hear what is said within so many seconds. Raises OSError."""
        for descriptor, _ in self._poll.poll(seconds * 1000):
            if descriptor == self._listening.fileno():
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    self._take(self._listening.accept()[0])
            else:
                self._hear(self.speakers[descriptor])

    def _take(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.speakers[connection.fileno()] = _Speaker(connection)
        self._poll.register(connection, select.POLLIN)

    def _hear(self, speaker: _Speaker) -> None:
        try:
            data = speaker.connection.recv(_CHUNK)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        speaker.said += data
        self.is_needed = self.is_needed or not data or len(speaker.said) > _MOST
        while (end := speaker.said.find(b"\n", speaker.understood)) >= 0:
            line = speaker.said[speaker.understood : end]
            speaker.understood = end + 1
            with contextlib.suppress(ValueError, RecursionError):
                self._understand(speaker, decode(json.loads(line)))

    def _understand(self, speaker: _Speaker, event: Event) -> None:
        self.is_needed = self.is_needed or isinstance(event, Bye | Arrive | Await)
        if isinstance(event, Hello):
            speaker.pid = event.pid
        elif isinstance(event, RingOpened):  # it is gone with the rank
            at = speaker.pid, event.fd
            with contextlib.suppress(OSError):
                opened = open_ring(*at)
                if at in self.rings:
                    os.close(self.rings[at])
                self.rings[at] = opened
