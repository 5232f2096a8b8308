"""A real script of a user's own that hangs, and the change that isolate finds for its code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

LIMIT = 240.0  # seconds for an isolation, on a busy machine
# In the place of W&B: it hangs unless it is disabled, and a start takes a second.
WANDB = """
import time

def init(mode=None):
    if mode != "disabled":
        time.sleep(1000)

def login():
    return True
"""
TRAIN = """
import wandb
wandb.init(mode="online")
print("trained")
"""


def test_the_change_is_found_without_touching_the_script(
    tmp_path: Path, package: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    (tmp_path / "wandb.py").write_text(WANDB)
    (tmp_path / "train.py").write_text(TRAIN)
    words = ["isolate", "--yes", "--stall", "2", "--confirm", "1", "--run-dir", "iso"]
    ours = ("HANGBISECT_", "WANDB_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    command = [sys.executable, str(package), *words, "--", sys.executable, "train.py"]
    process = start(*command, cwd=tmp_path, env=environ)
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, err
    found = json.loads((tmp_path / "iso" / "isolation.json").read_text())
    (change,) = found["changes"]
    assert (change["toggle"], change["value"]) == ("wandb", "off")
    assert "in code   wandb.init(mode='disabled')" in out.splitlines()
    steered = "WANDB_MODE=disabled HANGBISECT_STEER=wandb=off hangbisect run -- "
    assert found["paste"].startswith(steered)
    never = [name for name, why in found["unused"].items() if "never reaches" in why]
    assert {"num_workers", "strategy", "hub", "compile"} <= set(never)
