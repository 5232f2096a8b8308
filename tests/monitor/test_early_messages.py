"""What ranks say before the monitor is loaded is kept, and what they need of it is heard."""

from __future__ import annotations

import json
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base.loading import DelayLimits
from hangbisect.monitor import early_messages
from hangbisect.monitor.early_messages import Heard
from hangbisect.rank.collective_records import RING_NAME

AT_ONCE, LONG = DelayLimits(2.0, 2.0), DelayLimits(60.0, 60.0)  # nothing here takes a minute
Hear = Callable[..., Heard]
HELLO = {"t": "hello", "rank": 0, "pid": os.getpid()}


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "socket"))
        made.listen()
        yield made


@pytest.fixture
def hear() -> Iterator[Hear]:
    made: list[Heard] = []

    def hear_them(listener: socket.socket, limits: DelayLimits = LONG) -> Heard:
        made.append(early_messages.hear_early_messages(listener.fileno(), limits))
        return made[-1]

    yield hear_them
    for heard in made:
        for words in heard.words:
            words.connection.close()
        for ring in heard.rings.values():
            os.close(ring)


def speak(listener: socket.socket, *messages: Any) -> socket.socket:
    """Return a connection on which they were said."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(listener.getsockname())
    for message in messages:
        connection.sendall(json.dumps(message).encode() + b"\n")
    return connection


def test_all_that_is_said_is_kept_for_who_reads_it_later(
    hear: Hear, listener: socket.socket
) -> None:
    with speak(listener, HELLO, {"t": "step"}) as one, speak(listener, HELLO):
        one.sendall(b'{"t": "ha')  # the rest comes later
        heard = hear(listener, AT_ONCE)
        assert not heard.is_needed
        lengths = sorted(words.said.count(b"\n") for words in heard.words)
        assert lengths == [1, 2]
        assert any(words.said.endswith(b'{"t": "ha') for words in heard.words)
        for words in heard.words:  # and may be answered
            words.connection.sendall(b"?")
        assert one.recv(1) == b"?"
    assert listener.fileno() >= 0


@pytest.mark.parametrize(
    "said",
    [{"t": "bye"}, {"t": "arrive", "n": 1, "held": True}, {"t": "await", "what": "a file"}],
    ids=lambda said: said["t"],
)
def test_a_rank_that_waits_for_an_answer_is_not_let_wait(
    said: dict[str, object], hear: Hear, listener: socket.socket
) -> None:
    with speak(listener, HELLO, said):
        assert hear(listener).is_needed


def test_the_end_of_a_rank_is_heard(hear: Hear, listener: socket.socket) -> None:
    speak(listener, HELLO).close()
    heard = hear(listener)
    assert heard.is_needed
    assert json.loads(heard.words[0].said) == HELLO


def test_who_says_much_is_served(
    hear: Hear, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_messages, "_MOST", 1000)
    with speak(listener, HELLO, {"t": "line", "text": "x" * 1000}):
        assert hear(listener).is_needed


def test_what_is_no_message_is_left_to_who_reads_it_later(
    hear: Hear, listener: socket.socket
) -> None:
    with speak(listener, [1], "hello", {"t": []}, {"t": "ring", "fd": "x"}, {"t": "hello"}) as one:
        one.sendall(b"\xff{]\n")
        heard = hear(listener, AT_ONCE)
    assert heard.words[0].said.endswith(b"\xff{]\n")
    assert not heard.is_needed
    assert heard.rings == {}


def test_the_log_of_collectives_of_a_rank_is_kept(hear: Hear, listener: socket.socket) -> None:
    log = os.memfd_create(RING_NAME)
    os.write(log, b"a record")
    with speak(listener, HELLO, {"t": "ring", "fd": log}):
        heard = hear(listener, AT_ONCE)
    os.close(log)  # as if that process were gone
    ring = heard.rings[os.getpid(), log]
    assert os.pread(ring, 100, 0) == b"a record"


def test_without_descriptors_it_is_over(hear: Hear, listener: socket.socket) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with speak(listener, HELLO), speak(listener, HELLO):
        # One for the listener's copy, one for the first rank's connection, none for another.
        free = [os.dup(0) for _ in range(2)]
        for descriptor in free:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1] + 1, before[1]))
        began = time.monotonic()
        try:
            heard = hear(listener)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert heard.is_needed
        assert len(heard.words) == 1
        assert time.monotonic() - began < 30
