"""Signals of real processes: the monitor hears of them before the process goes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

DEADLINE = 60.0
Start = Callable[..., subprocess.Popen[str]]
RANK = """
import runpy, signal, sys, time
runpy.run_path(sys.argv[1] + "/__main__.py")
from hangbisect.rank.messages import Signals
exec(sys.argv[3])
signals = Signals(1)
signals.connect(sys.argv[2])
print(flush=True)
exec(sys.argv[4])
"""
SLEEPS = "time.sleep(3600)"
HOLDS_THE_GIL = """
import ctypes
libc = ctypes.PyDLL(None)
while True:
    libc.sleep(3600)
"""


class Monitor:
    """What ranks connect to."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="s-")
        self.folder = self._folder.name
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(DEADLINE)
        self._listener.bind(str(Path(self.folder) / "socket"))
        self._listener.listen()
        self._connection: socket.socket | None = None

    def hello(self) -> dict[str, Any]:
        """Return what the rank says of itself on its connection for signals."""
        self._connection, _ = self._listener.accept()
        self._connection.settimeout(DEADLINE)
        data = b""
        while not data.endswith(b"\n"):
            data += self._connection.recv(1)
        hello: dict[str, Any] = json.loads(data)
        return hello

    def hears(self) -> bytes:
        """Return the number of the signal that comes next; b"" for the end."""
        assert self._connection is not None
        return self._connection.recv(1)

    def lets_go(self) -> None:
        assert self._connection is not None
        self._connection.sendall(b"\n")

    def close(self) -> None:
        for one in (self._connection, self._listener):
            if one is not None:
                with suppress(OSError):
                    one.close()
        self._folder.cleanup()


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    made = Monitor()
    yield made
    made.close()


@pytest.fixture
def rank(
    start: Start, package: Path, monitor: Monitor
) -> Callable[[str, str], subprocess.Popen[str]]:
    """Start a rank that has connected, after `before`, and now does `then`."""

    def started(then: str, before: str = "") -> subprocess.Popen[str]:
        process = start(sys.executable, "-c", RANK, package, monitor.folder, before, then)
        assert monitor.hello() == {"t": "signals", "rank": 1, "pid": process.pid}
        assert process.stdout is not None
        process.stdout.readline()
        _until_it_sleeps(process.pid)
        return process

    return started


def _until_it_sleeps(pid: int) -> None:
    """Wait until a process is in its last call: a signal that comes just before that sets Python's
    flag, and interrupts nothing.
    """
    end, times = time.monotonic() + DEADLINE, 0
    while times < 5 and time.monotonic() < end:
        still = psutil.Process(pid).status() in (psutil.STATUS_SLEEPING, psutil.STATUS_ZOMBIE)
        times = times + 1 if still else 0
        time.sleep(0.02)


Rank = Callable[..., subprocess.Popen[str]]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_monitor_hears_of_a_signal_and_the_rank_goes_by_it_once_it_may(
    number: signal.Signals, rank: Rank, monitor: Monitor
) -> None:
    process = rank(SLEEPS)
    process.send_signal(number)
    assert monitor.hears() == bytes([number])
    monitor.lets_go()
    assert process.wait(DEADLINE) == -number


def test_the_monitor_hears_of_it_under_a_held_gil(rank: Rank, monitor: Monitor) -> None:
    process = rank(HOLDS_THE_GIL)
    process.send_signal(signal.SIGTERM)
    assert monitor.hears() == bytes([signal.SIGTERM])


def test_without_an_answer_the_rank_goes_all_the_same(rank: Rank, monitor: Monitor) -> None:
    process = rank(SLEEPS)
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == -signal.SIGTERM


def test_without_a_monitor_any_more_it_goes_at_once(rank: Rank, monitor: Monitor) -> None:
    process = rank(SLEEPS)
    monitor.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == -signal.SIGTERM


def test_what_was_ignored_stays_ignored(rank: Rank, monitor: Monitor) -> None:
    process = rank(SLEEPS, "signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    monitor.lets_go()
    assert process.wait(DEADLINE) == -signal.SIGTERM


def test_a_child_of_the_rank_ends_by_its_signals_unheard(rank: Rank, monitor: Monitor) -> None:
    process = rank(
        "import os\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    time.sleep(3600)\n"
        "time.sleep(0.2)\n"
        "os.kill(child, signal.SIGTERM)\n"
        "os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGTERM)"
    )
    assert process.wait(DEADLINE) == 0
    assert monitor.hears() == b""


def test_without_a_socket_nothing_is_installed(start: Start, package: Path, tmp_path: Path) -> None:
    then = "print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)"
    process = start(sys.executable, "-c", RANK, package, tmp_path, "", then)
    out, err = process.communicate(timeout=DEADLINE)
    assert (out.split(), process.returncode) == (["True"], 0), err
