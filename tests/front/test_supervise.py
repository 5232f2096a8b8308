"""The process in front of a command gives back what the command gave: its status, its output, and
the signals that are sent to it. Two more tests of each kind are in tests/real/test_front.py.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jobs
import pytest

Start = Callable[..., subprocess.Popen[str]]
DEADLINE = 100.0  # seconds, on a busy machine


@pytest.fixture
def run(start: Start, package: Path, tmp_path: Path) -> Start:
    """Start a command under `hangbisect run`."""

    def begin(*command: object) -> subprocess.Popen[str]:
        environ = jobs.clean_environ() | {"HANGBISECT_RUN_DIR": str(tmp_path / "run")}
        return start(sys.executable, package, "run", "--", *command, env=environ)

    return begin


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("echo said; echo told >&2; exit 7", 7),
        ("echo said; echo told >&2; kill -TERM $$", -signal.SIGTERM),
    ],
)
def test_the_status_and_the_output_are_the_commands_own(
    run: Start, script: str, status: int
) -> None:
    process = run("sh", "-c", script)
    said, told = process.communicate(timeout=DEADLINE)
    assert (said, process.returncode) == ("said\n", status)
    assert "told\n" in told


def test_a_signal_that_is_sent_to_the_front_comes_to_the_command_once(run: Start) -> None:
    program = (
        "import signal, sys\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('got', flush=True))\n"
        "signal.signal(signal.SIGUSR2, lambda *_: sys.exit(3))\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()\n"
    )
    process = run(sys.executable, "-I", "-S", "-c", program)
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    process.send_signal(signal.SIGUSR1)
    lines.append(process.stdout.readline())
    process.send_signal(signal.SIGUSR2)
    rest, _ = process.communicate(timeout=DEADLINE)
    assert ("".join(lines) + rest, process.returncode) == ("ready\ngot\n", 3)


def test_a_command_that_is_not_there_is_said(run: Start) -> None:
    process = run("no-such-command-of-ours", "--flag")
    said, told = process.communicate(timeout=DEADLINE)
    assert said == ""
    assert process.returncode == 127  # as a shell has it (POSIX, sh, "Exit Status for Commands")
    assert "no-such-command-of-ours" in told
