"""torchrun on the first of several nodes: which others are at the rendezvous is said, before any
rank is there. The agents are real; their nodes are this machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .test_launchers import free_port

SCRIPTS = str(Path(sys.executable).parent)
LIMIT = 200.0  # seconds: agents import torch, on a busy machine


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A command with its processes, ended by a person's Ctrl-C."""
    process = subprocess.Popen(
        [f"{SCRIPTS}/{words[0]}", *words[1:]],
        env={**os.environ, "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def read_until(process: subprocess.Popen[str], end: str) -> list[str]:
    """Return the lines on stderr up to the first that ends so; all, if none does in time."""
    assert process.stderr is not None
    clock = threading.Timer(LIMIT, process.kill)
    clock.start()
    lines = []
    try:
        for line in process.stderr:
            lines.append(line.rstrip("\n"))
            if lines[-1].endswith(end):
                break
    finally:
        clock.cancel()
    return lines


def test_which_nodes_are_there_is_said_as_they_come(tmp_path: Path) -> None:
    place = f"127.0.0.1:{free_port()}"
    agent = ("--nnodes=3", "--rdzv-backend=c10d", f"--rdzv-endpoint={place}", "--rdzv-id=a", "t.py")
    folder = f"--run-dir={tmp_path}/run"
    with started("hangbisect", "run", "--stall", "2", folder, "--", "torchrun", *agent) as first:
        alone = f"1 of 3 nodes is at the rendezvous {place}: this one"
        lines = read_until(first, alone)
        assert lines[-1].endswith(alone), lines
        assert "No rank yet after" in lines[-1]
        with started("torchrun", *agent):
            two = f"2 of 3 nodes are at the rendezvous {place}: this one, 127.0.0.1"
            lines = read_until(first, two)
            assert lines[-1].endswith(two), lines
    assert not [line for line in lines if "HANG" in line]
