"""The process in front of a rank that no launcher started, with real signals."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ..conftest import Start

DEADLINE = 60.0
# The rank counts what it gets until it has had nothing more for a second.
PROGRAM = """
import os, signal, sys, time
from hangbisect.rank.exit_proxy import start_exit_proxy

result = start_exit_proxy()
if result.status is not None:
    sys.exit(result.status)
got = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: got.append(signal.Signals(number).name))
print("ready", os.getppid(), flush=True)
until = time.monotonic() + 60
while not got and time.monotonic() < until:
    time.sleep(0.05)
time.sleep(1)
print(*got, flush=True)
os._exit(7)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_a_process_sent_is_handed_on(number: signal.Signals, start: Start) -> None:
    """`kill -INT`, and what stands in front of it: only this process gets it."""
    process = start(sys.executable, "-c", PROGRAM)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready")
    os.kill(process.pid, number)
    assert process.stdout.readline().split() == [number.name]
    assert process.wait(DEADLINE) == 7


def test_what_the_terminal_sends_to_both_is_not_handed_on(tmp_path: Path) -> None:
    """Ctrl-C: the rank has it already, and a second one would be another wish."""
    (tmp_path / "program.py").write_text(PROGRAM)
    leader, follower = pty.openpty()
    with subprocess.Popen(
        ["setsid", "--ctty", "--wait", sys.executable, tmp_path / "program.py"],
        stdin=follower,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("ready")
            os.write(leader, b"\x03")
            assert process.stdout.readline().split() == ["SIGINT"]
        finally:
            process.kill()
            os.close(leader)
            os.close(follower)


def test_its_status_is_the_ranks(start: Start) -> None:
    process = start(sys.executable, "-c", PROGRAM.replace("while not got", "while False"))
    assert process.wait(DEADLINE) == 7
