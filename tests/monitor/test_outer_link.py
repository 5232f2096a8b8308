"""What outer processes are told, also where they do not read at once, or come late."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base.events import decode
from hangbisect.monitor import watcher_link
from hangbisect.monitor.watcher_link import SupervisorLink, SupervisorLinks, is_kept_file

HELLO = {"t": "hello", "rank": 0, "pid": 4711, "at": 1.0, "environment": {"TOKEN": "x"}}
VERDICT = {"t": "verdict", "outcome": "hang", "ends": True}


class Outer:
    """The other end."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.path)
        self._listener.listen()
        self._connection: socket.socket | None = None

    def heard(self) -> list[dict[str, Any]]:
        """Return what has come since the last time."""
        if self._connection is None:
            self._connection, _ = self._listener.accept()
            self._connection.setblocking(False)
        found: list[dict[str, Any]] = []
        while True:
            try:
                data = self._connection.recv(1 << 16)
            except BlockingIOError:
                return found
            if not data:
                return found
            found.append(json.loads(data))

    def close(self) -> None:
        for one in (self._listener, self._connection):
            if one is not None:
                one.close()


@pytest.fixture
def outers(tmp_path: Path) -> Iterator[list[Outer]]:
    both = [Outer(tmp_path / name) for name in ("a", "b")]
    yield both
    for one in both:
        one.close()


def test_a_verdict_arrives_although_the_socket_was_full(outers: list[Outer]) -> None:
    links = SupervisorLinks(outers[0].path)
    for number in range(20_000):
        links.tell(decode({"t": "enter", "rank": 0, "n": number, "at": 1.0}))
    links.tell(decode(VERDICT))
    assert VERDICT not in (first := outers[0].heard())
    assert len(first) < 20_000
    links.close()
    assert outers[0].heard() == [VERDICT]


def test_each_outer_process_hears_all_and_a_late_one_what_was_before(outers: list[Outer]) -> None:
    links = SupervisorLinks(outers[0].path)
    links.tell(decode(HELLO))
    links.add(outers[1].path)
    links.add(outers[1].path)
    links.tell(decode(VERDICT))
    told = [{"t": "hello", "rank": 0, "pid": 4711, "at": 1.0}, VERDICT]
    assert outers[0].heard() == told
    assert outers[1].heard() == told
    assert len(links.pids()) == 2
    links.close()


def test_one_that_is_gone_costs_nothing(outers: list[Outer]) -> None:
    links = SupervisorLinks(outers[0].path)
    outers[0].heard()
    outers[0].close()
    links.tell(decode(HELLO))
    links.tell(decode(VERDICT))
    links.close()
    assert links.pids() == []
    assert SupervisorLinks("/nowhere/socket").pids() == []


def test_a_part_of_the_watch_that_failed_is_not_the_watch(outers: list[Outer]) -> None:
    links = SupervisorLinks(outers[0].path)
    links.tell(decode({"t": "failed", "part": "look at a rank", "traceback": "..."}))
    links.tell(decode({"t": "failed", "traceback": "..."}))
    links.close()
    assert outers[0].heard() == [{"t": "failed"}]


def test_where_a_launcher_hands_on_what_we_print_one_outer_process_prints_it(
    outers: list[Outer], monkeypatch: pytest.MonkeyPatch
) -> None:
    links = SupervisorLinks(outers[0].path)
    links.add(outers[1].path)
    monkeypatch.setattr(SupervisorLink, "sees_our_stderr", lambda link: False)
    monkeypatch.setattr(watcher_link, "is_kept_file", lambda descriptor, launcher: False)
    assert links.hand_over("HANG ...", 1)
    assert outers[0].heard() == [{"t": "answered", "text": "HANG ..."}]
    assert outers[1].heard() == []
    monkeypatch.setattr(watcher_link, "is_kept_file", lambda descriptor, launcher: True)
    assert not links.hand_over("HANG ...", 1)  # who reads that file reads it there
    assert outers[0].heard() == [{"t": "answered", "text": "HANG ..."}]
    # One of several prints where we do: its reader has it.
    its = {outers[1].path}
    monkeypatch.setattr(SupervisorLink, "sees_our_stderr", lambda link: link.path in its)
    assert not links.hand_over("HANG ...", 1)
    assert outers[0].heard() == []
    links.close()
    assert not SupervisorLinks("").hand_over("HANG ...", 1)


def test_a_file_that_the_launcher_reads_itself_is_handed_on(tmp_path: Path) -> None:
    with (tmp_path / "stderr.log").open("w") as log:
        assert is_kept_file(log.fileno(), os.getpid())
        with (tmp_path / "stderr.log").open():
            assert not is_kept_file(log.fileno(), os.getpid())
    reader, writer = os.pipe()
    assert not is_kept_file(writer, os.getpid())
    os.close(reader)
    os.close(writer)
