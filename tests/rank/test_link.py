"""A rank's link: whole messages, and no wait without a limit."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hangbisect.base.events import Line
from hangbisect.base.place import find_place
from hangbisect.rank import link as links
from hangbisect.rank.link import LONGEST_TEXT, Link, encode_message
from hangbisect.rank.monitor_connection import MonitorConnection

PLACE = replace(find_place({}), rank=1, local_rank=1, world_size=2, job="abc")
# A monitor that takes nothing: it listens, says its pid, and is stopped by whoever wants it so.
SILENT = """
import os, socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print(flush=True)
connection, _ = listener.accept()
time.sleep(300)
"""


class Late(Exception):
    """A time limit of the job's."""


def late(number: int, frame: FrameType | None) -> None:
    raise Late


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SILENT, str(tmp_path / "socket")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def link(
    tmp_path: Path, monitor: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Link]:
    """A link to it, as in a script of the user's own; what it says is in link.said."""
    monkeypatch.setenv("HANGBISECT_FOLDER", "")
    monkeypatch.setenv("HANGBISECT_JOB", "")
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(tmp_path / "socket"))
    said: list[str] = []
    made: Any = Link(PLACE, {}, said.append)
    made.said, made.ends_quietly, made.descriptor = said, True, connection.fileno()
    made.open(MonitorConnection(connection, str(tmp_path)), {})
    yield made
    made.close()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def tell_much(link: Link, text: str = "x" * 1000) -> int:
    """Tell until it is told no longer; return how often."""
    for count in range(100_000):
        if link.alone:
            return count
        link.tell(Line(text=text))
    raise AssertionError("it never gave up")


def test_a_monitor_that_takes_nothing_is_left_once_and_for_all(
    link: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "SEND_LIMIT", 0.2)
    tell_much(link)
    assert len(link.said) == 1
    assert link.said[0].startswith("Going on without the watch: the monitor took no message for")
    link.tell(Line(text="x"))
    link.goodbye()
    assert len(link.said) == 1


def test_a_monitor_that_is_stopped_is_not_waited_for(
    link: Any, monitor: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SEND_LIMIT", "GOODBYE_LIMIT"):
        monkeypatch.setattr(links, name, 1e6)  # the test would not end
    monitor.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, monitor.pid, os.WSTOPPED | os.WNOWAIT)
    link.goodbye()
    link._left = False
    tell_much(link)
    assert link.alone


def test_a_handler_that_raises_in_a_message_is_heard_and_nothing_half_is_sent(link: Any) -> None:
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    with pytest.raises(Late):
        tell_much(link, "x" * 100_000)
    signal.setitimer(signal.ITIMER_REAL, 0)
    link.tell(Line(text="after"))
    assert link.alone
    assert len(link.said) == 1


def test_a_handler_that_tells_in_the_middle_of_a_message_sends_it_whole() -> None:
    ours, theirs = socket.socketpair()
    made: Any = Link(PLACE, {}, print)
    made._socket = ours
    ours.setblocking(False)
    is_told: list[bool] = []

    def tell(number: int, frame: FrameType | None) -> None:
        made.tell(Line(text="from the handler"))
        is_told.append(True)

    signal.signal(signal.SIGALRM, tell)
    pid = os.fork()
    if pid == 0:  # it reads once the socket is full, and gives back what it read
        ours.close()
        time.sleep(0.5)
        data = b""
        while data.count(b"\n") < 2:
            data += theirs.recv(1 << 16)
        lines = [json.loads(line)["text"] for line in data.splitlines()]
        os._exit(0 if lines == ["x" * 2_000_000, "from the handler"] else 1)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        made.tell(Line(text="x" * 1_000_000 + "x" * 1_000_000))
        assert is_told
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        made.close()
        theirs.close()


def test_descriptors_above_1023_do_not_matter(link: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip("so many descriptors are not allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    high = 1500
    try:
        low = link._socket.detach()
        os.dup2(low, high, inheritable=False)
        os.close(low)
        link._socket = socket.socket(fileno=high)
        link._socket.setblocking(False)
        link.tell(Line(text="x"))
        link.listen()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not link.alone


def test_a_message_that_the_monitor_would_not_take_is_cut_and_says_so() -> None:
    text = "x" * (1 << 25)
    cut = json.loads(
        encode_message({"t": "bye", "error": text, "changed": {"A": text}, "status": 1})
    )
    for one in (cut["error"], cut["changed"]["A"]):
        assert one[LONGEST_TEXT:] == f"\n({len(text) - LONGEST_TEXT} more characters are left out)"
    assert cut["status"] == 1
    whole = {"t": "bye", "error": "x" * 2_000_000}
    assert json.loads(encode_message(whole)) == whole
