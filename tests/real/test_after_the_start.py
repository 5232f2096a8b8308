"""Training goes on, and later than its first steps something of it stands still: `hangbisect run`
speaks once no step has come for much longer than ever before, and not while anything moves.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from .test_monitor_never_harms import watched
from .verdicts import shown
from .whole_jobs import Job, Jobs

pytest.importorskip("torch")

TORCHRUN = (str(Path(sys.executable).parent / "torchrun"), "--standalone", "--nproc_per_node=2")
# Steps of 50 ms with a collective each; what comes at step 40 is the case's own.
TRAINS = """
import hashlib, os, socket, sys, threading, time
import torch, torch.distributed as dist

def evaluate(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for number in range(20):
            hashlib.sha256(bytes(100_000) + bytes([number])).hexdigest()

def wait_for_an_answer(seconds):
    mine, theirs = socket.socketpair()
    def answer():
        time.sleep(seconds)
        theirs.send(b"x")
    threading.Thread(target=answer, daemon=True).start()
    mine.recv(1)

def save(rank):
    dist.barrier()

def at_step_40(rank):
    {}

def train():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(60):
        optimizer.zero_grad()
        net(torch.ones(2, 4)).sum().backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        time.sleep(0.05)
        if step == 40:
            at_step_40(rank)
    dist.destroy_process_group()
    print("trained", flush=True)

train()
"""


def start(jobs_here: Jobs, at_step_40: str, *watch: str) -> Job:
    folder = jobs_here.folder()
    (folder / "train.py").write_text(TRAINS.replace("{}", at_step_40), encoding="utf-8")
    command = (*TORCHRUN, str(folder / "train.py"))
    return watched(jobs_here, folder, command, "--stall", "4", *watch)


def test_a_collective_of_some_ranks_in_the_midst_of_training_is_a_hang(jobs_here: Jobs) -> None:
    job = start(jobs_here, "if rank == 0: save(rank)", "--on-hang", "end")
    ended = job.end()
    verdict: dict[str, Any] = ended.verdict
    assert verdict["outcome"] == "hang", shown(ended)
    assert verdict["cause"]["id"] == "rank-conditional-collective"
    assert verdict["ranks"]["culprit"] == [0]
    assert "No training step for " in ended.err
    assert ended.status == 3


def test_a_rank_that_waits_for_somebody_else_is_silent_and_taken_back(jobs_here: Jobs) -> None:
    ended = start(jobs_here, "if rank == 1: wait_for_an_answer(25)", "--on-hang", "end").end()
    assert ended.err.count("SILENT  ") == 1, shown(ended)
    assert "culprit   rank 1" in ended.err
    assert "HANG  " not in ended.err
    assert "Taken back: rank 1 moves again" in ended.err
    assert ended.out.count("trained") == 2
    assert ended.status == 0
    assert ended.verdict.get("outcome", "ok") == "ok"


def test_an_evaluation_that_lasts_long_is_no_hang_and_nothing_is_said(jobs_here: Jobs) -> None:
    ended = start(jobs_here, "if rank == 0: evaluate(25)").end()
    assert ended.status == 0, shown(ended)
    assert ended.out.count("trained") == 2
    for word in ("SILENT", "HANG", "SLOW", "No training step", "looking"):
        assert word not in ended.err, shown(ended)


def test_a_job_that_somebody_stops_for_a_while_is_no_hang(jobs_here: Jobs) -> None:
    job = start(jobs_here, "evaluate(0.2)", "--on-hang", "end")
    job.until("CHECKPOINT first_step")
    time.sleep(2)
    os.killpg(job.running.process.pid, signal.SIGSTOP)  # as Ctrl-Z does: the ranks too
    for rank in (0, 1):
        job.rank(rank).suspend()
    time.sleep(20)
    for rank in (0, 1):
        job.rank(rank).resume()
    os.killpg(job.running.process.pid, signal.SIGCONT)
    ended = job.end()
    assert ended.status == 0, shown(ended)
    assert ended.out.count("trained") == 2
    assert "HANG" not in ended.err, shown(ended)
    assert "SILENT" not in ended.err


def test_attach_reads_the_log_of_a_job_that_trains(jobs_here: Jobs) -> None:
    job = start(jobs_here, "if rank == 0: save(rank)", "--stall", "600")
    folder = job.folder
    (folder / "run").mkdir(exist_ok=True)
    job.until("CHECKPOINT first_step")
    asked = _attach(job, folder)
    assert asked["ranks"]["culprit"] == [0]
    assert asked["cause"]["id"] == "rank-conditional-collective"
    assert asked["outcome"] == "hang"


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
