"""Ranks without the variables of the watch: found by their launcher, and seen from outside."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from ..conftest import Start
from .slurm_here import Slurm

DEADLINE = 120.0  # seconds
TRAIN = """\
import os, time

def prepare():
    if os.environ["SLURM_PROCID"] == "1":
        time.sleep(600)

prepare()
"""


def test_tasks_of_srun_without_our_variables_are_found_by_its_port(
    slurm: Slurm, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    ours = [sys.executable, "-m", "hangbisect", "run", "--stall", "2", "--limit", "15"]
    ours += ["--on-hang", "end"]
    srun = ["srun", "--nodes=2", "--ntasks=2", "--export=NONE", sys.executable, "train.py"]
    environ = {**os.environ, **slurm.environ}
    job = start(*ours, "--run-dir", "run", "--", *srun, env=environ, cwd=tmp_path)
    _, said = job.communicate(timeout=DEADLINE)
    assert job.returncode == 4, said
    assert "--export=NONE keeps variables from srun's tasks" in said
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text(encoding="utf-8"))
    assert (verdict["outcome"], verdict["ranks"]["culprit"]) == ("silent", [1])
    assert verdict["call"] == "time.sleep"
    assert slurm.is_free()
