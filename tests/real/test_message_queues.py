"""Real processes that wait for one another by ZeroMQ and by Unix sockets, seen from outside."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base.process_facts import Look
from hangbisect.evidence.look import Target, take_looks

from ..conftest import Start

LIMIT = 120.0  # seconds
LAUNCHER = """
import os, subprocess, sys
own = [{"RANK": str(n), "LOCAL_RANK": str(n)} for n in range(2)]
run = {"TORCHELASTIC_RUN_ID": sys.argv[2], "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
command = [sys.executable, sys.argv[1]]
ranks = [subprocess.Popen(command, env={**os.environ, **run, **one}) for one in own]
ranks[0].wait()
"""
BEGINS = """
import os, pathlib, sys, time
here, rank = pathlib.Path(__file__).parent, os.environ["RANK"]

def ready():
    (here / f"ready-{rank}").touch()

def read_the_index():
    ready()
    open(here / "fifo").read()
"""
ASKS = """
import zmq
context = zmq.Context()
if rank == "0":
    asks = context.socket(zmq.REQ)
    asks.connect(f"ipc://{here}/q")
    asks.send(b"go")
    ready()
    while True:
        poller = zmq.Poller()
        poller.register(asks, zmq.POLLIN)
        if poller.poll(5000):
            break
else:
    answers = context.socket(zmq.REP)
    answers.bind(f"ipc://{here}/q")
    answers.recv()
    read_the_index()
"""
READS_A_SOCKET = """
import socket
if rank == "0":
    one = socket.socket(socket.AF_UNIX)
    while True:
        try:
            one.connect(str(here / "s"))
            break
        except OSError:
            time.sleep(0.05)
    ready()
    one.recv(1)
else:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(here / "s"))
    server.listen()
    kept, _ = server.accept()
    read_the_index()
"""
NOBODY_THERE = """
import zmq
asks = zmq.Context().socket(zmq.PULL)
if rank == "0":
    asks.connect(f"ipc://{here}/nobody.sock")
    ready()
    asks.recv()
else:
    read_the_index()
"""


def attach(start: Start, folder: Path, script: str) -> dict[str, Any]:
    """Return the verdict on two ranks of a script."""
    pytest.importorskip("zmq")
    os.mkfifo(folder / "fifo")
    (folder / "torchrun").write_text(LAUNCHER)
    (folder / "train.py").write_text(BEGINS + script)
    words = (sys.executable, folder / "torchrun", folder / "train.py", os.urandom(4).hex())
    process = start(*words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: all((folder / f"ready-{rank}").exists() for rank in range(2)))
    command = [sys.executable, "-m", "bisect", "attach", str(process.pid), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, cwd=folder)
    assert ended.returncode == 4, ended.stdout + ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("script", [ASKS, READS_A_SOCKET], ids=["zeromq", "unix socket"])
def test_who_waits_for_another_rank_by_a_socket_is_not_blamed(
    start: Start, tmp_path: Path, script: str
) -> None:
    verdict = attach(start, tmp_path, script)
    assert verdict["ranks"]["culprit"] == [1]
    assert verdict["ranks"]["waiting"] == [0]
    assert any(edge["target"] == "rank 1" for edge in verdict["chain"])


def test_an_address_that_nobody_serves_is_the_cause(start: Start, tmp_path: Path) -> None:
    verdict = attach(start, tmp_path, NOBODY_THERE)
    assert 0 in verdict["ranks"]["culprit"]
    assert f"nobody serves ipc://{tmp_path}/nobody.sock" in verdict["waits_for"]["detail"]
    assert verdict["cause"]["id"] == "endpoint-unserved"
    assert verdict["cause"]["level"] == "fits"


def test_a_queue_whose_server_is_there_has_nothing_unserved(start: Start, tmp_path: Path) -> None:
    zmq = pytest.importorskip("zmq")
    with zmq.Context() as context, context.socket(zmq.PUSH) as serves:
        serves.bind(f"ipc://{tmp_path}/q")
        reads = f"import zmq; s = zmq.Context().socket(zmq.PULL); s.connect('ipc://{tmp_path}/q')"
        process = start(sys.executable, "-c", f"{reads}; print('now', flush=True); s.recv()")
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        seen: list[Look] = []

        def is_connected() -> bool:
            seen[:] = asyncio.run(take_looks([Target(process.pid)]))
            tasks = [task for task in seen[0].kernel if task.comm.startswith("ZMQbg/IO")]
            named = [d.socket for k in tasks if k.syscall for d in k.syscall.descriptors]
            return any(one is not None and os.getpid() in one.peer_pids for one in named)

        wait_until(is_connected)
        assert seen[0].unserved == ()
