"""`attach --slurm` on a real job that hangs on two nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from ..conftest import Start
from ..transcripts import block, is_printed
from .slurm_here import Slurm

DEADLINE = 120.0  # seconds
JOB = """\
import os, sys, time
import torch.distributed as dist

def prepare():
    open(sys.argv[1], "w").close()
    time.sleep(600)

rank = int(os.environ["SLURM_PROCID"])
store = "file://" + sys.argv[1] + ".store"
dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
if rank == 1:
    prepare()
dist.barrier()
"""


@pytest.fixture
def environ(slurm: Slurm) -> dict[str, str]:
    # Another Slurm's job may have the same number, on this machine of several tests.
    return {**os.environ, **slurm.environ, "WHOSE_JOB": uuid.uuid4().hex}


def test_the_nodes_of_a_job_are_judged_as_one(
    slurm: Slurm, start: Start, environ: dict[str, str], tmp_path: Path, package: Path
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(JOB)
    stuck = tmp_path / "stuck"
    command = ("srun", "--nodes=2", "--ntasks=2", sys.executable, tmp_path / "train.py", stuck)
    job = start(*command, env=environ, stderr=subprocess.STDOUT)
    end = time.monotonic() + DEADLINE
    while not stuck.exists():
        assert job.poll() is None
        assert time.monotonic() < end
        time.sleep(0.1)
    slurm.ask("scontrol", "update", "nodename=n1", "state=drain", "reason=GPU 3 fell off")
    attach = (sys.executable, package, "attach", "--slurm", "--limit", "90")
    asked = subprocess.run(
        [*attach, f"--in=WHOSE_JOB={environ['WHOSE_JOB']}"],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    slurm.ask("scontrol", "update", "nodename=n1", "state=resume")
    assert asked.returncode == 4, asked.stderr
    assert "n1: Slurm says that it is MIXED+DRAIN: GPU 3 fell off\n" in asked.stderr
    assert "n0: " not in asked.stderr
    assert is_printed(block("how-to/hung-on-slurm.md", "SILENT"), asked.stdout), asked.stdout
    (file,) = (tmp_path / "runs").glob("*/verdict.json")
    verdict = json.loads(file.read_text())
    assert (verdict["ranks"]["culprit"], verdict["ranks"]["waiting"]) == ([1], [0])
    assert (verdict["call"], verdict["where"][0]["host"]) == ("time.sleep", "n1")
    assert verdict["command"][:3] == ["srun", "--nodes=2", "--ntasks=2"]
    only = f"--in=WHOSE_JOB={environ['WHOSE_JOB']}"
    ended = subprocess.run(
        [*attach, only, "--kill", "--yes"],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert ended.returncode == 4, ended.stderr
    assert "n0: ended " in ended.stderr
    assert "n1: ended " in ended.stderr
    job.wait(DEADLINE)
    assert slurm.is_free()


STANDS = """\
import os, sys, time
open(sys.argv[1] + os.environ["SLURM_PROCID"], "w").close()
time.sleep(600)
"""


def test_a_node_whose_slurmd_does_not_answer_is_named_and_the_others_are_seen(
    slurm: Slurm, start: Start, environ: dict[str, str], tmp_path: Path, package: Path
) -> None:
    (tmp_path / "stands.py").write_text(STANDS)
    there = tmp_path / "there-"
    command = ("srun", "--nodes=2", "--ntasks=2", sys.executable, tmp_path / "stands.py", there)
    job = start(*command, env=environ, stderr=subprocess.STDOUT)
    end = time.monotonic() + DEADLINE
    while not all(Path(f"{there}{number}").exists() for number in range(2)):
        assert job.poll() is None
        assert time.monotonic() < end
        time.sleep(0.1)
    attach = (sys.executable, package, "attach", "--slurm", "--limit", "60")
    silent = slurm.find_slurmd("n1")
    silent.suspend()
    try:
        asked = subprocess.run(
            [*attach, f"--in=WHOSE_JOB={environ['WHOSE_JOB']}"],
            env=environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
    finally:
        silent.resume()
    assert "\nn1: " in asked.stderr, asked.stderr  # srun's own words, or that there is no answer
    assert "    there: srun --overlap --jobid=" in asked.stderr
    assert " --nodelist=n1 " in asked.stderr
    assert "n0: " not in asked.stderr, asked.stderr
    (file,) = (tmp_path / "runs").glob("*/verdict.json")
    verdict = json.loads(file.read_text())
    assert verdict["seen_ranks"] == [0], asked.stdout
    assert verdict["partial"] or "n1" in asked.stdout, asked.stdout
    job.terminate()
    job.wait(DEADLINE)
    assert slurm.is_free()
