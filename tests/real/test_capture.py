"""Capturing is switched on in a job that runs, and nobody restarts or disturbs it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jobs
from hangbisect.captures.reading import load

DEADLINE = 150.0  # seconds, on a busy machine
NET = """
import torch

class Net(torch.nn.Linear):  # without a constructor of its own
    pass
"""
TRAIN = """
import os, resource, time
import torch
from net import Net

rank, net = int(os.environ["RANK"]), Net(100, 2)
if rank == 1:  # writes of more fail, as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))
while not os.path.exists("stop"):
    net(torch.full((100, 100), float(rank)))
    open(f"ready{rank}", "w").close()
    time.sleep(0.01)
"""


def until(true: Callable[[], Any], job: subprocess.Popen[str]) -> None:
    """Wait until something is true."""
    end = time.monotonic() + DEADLINE
    while not true():
        assert job.poll() is None, job.communicate()
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_running_job_captures_when_it_is_told_to_and_runs_on_when_its_disk_is_full(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path, package: Path
) -> None:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "train.py").write_text(TRAIN)
    environ = {**jobs.clean_environ(), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

    def ask(*words: str) -> str:
        command = [sys.executable, str(package), "capture", *words]
        asked = subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=DEADLINE
        )
        return str(asked.stdout)

    torchrun = [Path(sys.executable).parent / "torchrun", "--standalone", "--nproc_per_node=2"]
    job = start(
        *(sys.executable, package, "run", "--capture", "net:Net", "--", *torchrun, "train.py"),
        cwd=tmp_path,
        env=environ,
    )
    until(lambda: all((tmp_path / f"ready{rank}").exists() for rank in (0, 1)), job)
    assert not (tmp_path / "captures").exists()  # off by default
    assert "on since" in ask("on", "--max-captures", "3")
    until(lambda: ask("status").count("stopped: ") == 2, job)
    said = ask("status")
    assert "Net  3 inputs  stopped: it has the 3 captures that --max-captures allows" in said
    assert "Net  0 inputs  stopped: " in said
    assert "File too large" in said
    listed = json.loads(ask("list", "--json"))
    assert listed["unreadable"] == []
    assert [(one["rank"], one["outcome"]) for one in listed["captures"]] == [(0, "returned")] * 3
    assert [one["inputs"] for one in listed["captures"]] == [{"0": "float32[100, 100]"}] * 3
    assert load(listed["captures"][0]["path"]).value[0][0].sum() == 0
    assert ask("off").startswith("off, ")
    (tmp_path / "stop").touch()
    _, err = job.communicate(timeout=DEADLINE)
    assert job.returncode == 0, err
    assert err.count("hangbisect: rank 1 captures no more: ") == 1
