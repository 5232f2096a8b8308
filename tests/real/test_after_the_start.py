"""Training goes on, and later than its first steps something of it stands still: `hangbisect run`
speaks once no step has come for much longer than ever before, and not while anything moves.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jobs
import pytest

from ..programs import WITHOUT_COMPILER
from .test_monitor_never_harms import watched
from .verdicts import shown
from .whole_jobs import DEADLINE, Job, Jobs, write_launcher

pytest.importorskip("torch")

# Steps of 50 ms with a collective each; what comes at step 20 is the case's own.
TRAINS = """
import hashlib, socket, sys, time
import torch, torch.distributed as dist

def evaluate(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for number in range(20):
            hashlib.sha256(bytes(100_000) + bytes([number])).hexdigest()

def wait_for_an_answer(port):
    with socket.create_connection(("127.0.0.1", port)) as service:
        service.recv(1)

def save(rank):
    dist.barrier()

def at_step_20(rank):
    {}

def train():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        net(torch.ones(2, 4)).sum().backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        time.sleep(0.05)
        if step == 20:
            print(f"rank {rank} is at step 20", file=sys.stderr, flush=True)
            at_step_20(rank)
            print(f"rank {rank} is past step 20", file=sys.stderr, flush=True)
    dist.destroy_process_group()
    print("trained", flush=True)

train()
"""


def start(jobs_here: Jobs, at_step_20: str, *watch: str, steps: int = 40) -> Job:
    folder = jobs_here.folder()
    source = WITHOUT_COMPILER + TRAINS.replace("{}", at_step_20).replace("STEPS", str(steps))
    (folder / "train.py").write_text(source, encoding="utf-8")
    command = (write_launcher(folder), "train.py")
    return watched(jobs_here, folder, command, "--stall", "4", *watch)


def test_a_collective_of_some_ranks_in_the_midst_of_training_is_a_hang_for_run_and_for_attach(
    jobs_here: Jobs,
) -> None:
    job = start(jobs_here, "if rank == 0: save(rank)")
    job.until("No training step for ", "HANG  ", "still running, still watched")
    verdict = jobs.verdict_of(job.running.run_dir)
    asked = _attach(job, job.folder)  # it reads the log that each rank keeps
    ended = job.end(limit=0)
    for found in (verdict, asked):
        assert found["outcome"] == "hang", shown(ended)
        assert found["cause"]["id"] == "rank-conditional-collective", found
        assert found["ranks"]["culprit"] == [0]


def test_a_rank_that_waits_for_somebody_else_is_silent_and_taken_back(
    jobs_here: Jobs,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:
        at_step_20 = f"if rank == 1: wait_for_an_answer({service.getsockname()[1]})"
        job = start(jobs_here, at_step_20, "--on-hang", "end")
        service.settimeout(DEADLINE)
        asks, _ = service.accept()
        with asks:
            job.until("SILENT  ", "still running, still watched")
            asks.send(b"x")
            ended = job.end()
    assert ended.err.count("SILENT  ") == 1, shown(ended)
    assert "culprit   rank 1" in ended.err, shown(ended)
    assert "HANG  " not in ended.err
    assert "Taken back: rank 1 moves again" in ended.err
    assert ended.out.count("trained") == 2
    assert ended.status == 0
    assert ended.verdict.get("outcome", "ok") == "ok"


def test_an_evaluation_that_lasts_long_and_a_job_that_somebody_stops_for_a_while_are_no_hang(
    jobs_here: Jobs,
) -> None:
    job = start(jobs_here, "if rank == 0: evaluate(12)", "--on-hang", "end", steps=120)
    said = job.until("rank 0 is past step 20")
    meanwhile = said[said.index("rank 0 is at step 20") : said.index("rank 0 is past step 20")]
    for word in ("SILENT", "HANG", "SLOW", "No training step", "looking"):
        assert word not in meanwhile
    os.killpg(job.running.process.pid, signal.SIGSTOP)  # as Ctrl-Z does: the ranks too
    for rank in (0, 1):
        job.rank(rank).suspend()
    time.sleep(15)
    for rank in (0, 1):
        job.rank(rank).resume()
    os.killpg(job.running.process.pid, signal.SIGCONT)
    ended = job.end()
    assert ended.status == 0, shown(ended)
    assert ended.out.count("trained") == 2
    assert "HANG" not in ended.err, shown(ended)
    assert "SILENT" not in ended.err


def _attach(job: Job, folder: Path) -> dict[str, Any]:
    """Return what `attach` says once nothing moves any more."""
    for number in range(20):
        time.sleep(2)
        words = (sys.executable, "-m", "bisect", "attach", str(job.running.process.pid), "--json")
        place = folder / f"attached-{number}"
        asked = subprocess.run(
            [*words, "--run-dir", str(place)],
            capture_output=True,
            text=True,
            timeout=120,
            env=dict(os.environ),
        )
        if asked.returncode in (3, 4):
            found: dict[str, Any] = json.loads(asked.stdout)
            return found
    raise AssertionError(asked.stdout + asked.stderr)
