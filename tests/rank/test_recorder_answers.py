"""The thread that answers for torch's own recorder."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

import pytest
from hangbisect.rank.collective_records import RecorderAnswers, serve_recorder


@pytest.fixture
def ends() -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection."""
    ours, theirs = socket.socketpair()
    ours.settimeout(30)
    return ours, theirs


def test_each_question_is_answered_with_a_line_and_the_dumps(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    thread = threading.Thread(target=serve_recorder, args=(theirs, lambda: [b'{"a": 1}', b"\n\n"]))
    thread.start()
    with ours, ours.makefile("rb") as file:
        for _ in range(2):
            ours.sendall(b"?")
            about = json.loads(file.readline())
            assert about["lengths"] == [8, 2]
            assert [file.read(n) for n in about["lengths"]] == [b'{"a": 1}', b"\n\n"]
            assert about["sequence"] == {}
    thread.join(30)
    assert not thread.is_alive()


def test_without_torch_there_is_nothing_to_tell(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    ours, theirs = ends
    threading.Thread(target=serve_recorder, args=(theirs,)).start()
    with ours, ours.makefile("rb") as file:
        ours.sendall(b"?")
        assert json.loads(file.readline())["lengths"] == []


def test_it_says_hello_once_there_is_a_group_and_not_before(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as monitor:
        monitor.settimeout(30)
        os.chdir(tmp_path)  # the name of a Unix socket has 108 bytes at most
        monitor.bind("socket")
        monitor.listen()
        answers = RecorderAnswers(3)
        answers.connect(".")
        monitor.setblocking(False)
        with pytest.raises(BlockingIOError):
            monitor.accept()
        monitor.settimeout(30)
        answers.begin()
        connection, _ = monitor.accept()
        with connection, connection.makefile("rb") as file:
            hello = json.loads(file.readline())
            assert (hello["t"], hello["rank"], hello["pid"]) == ("recorder", 3, os.getpid())


def test_no_monitor_is_no_reason_to_fail(tmp_path: Path) -> None:
    answers = RecorderAnswers(0)
    answers.connect(str(tmp_path))
    answers.begin()
