"""A real script of a user's own that hangs, and the change that isolate finds for its code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..programs import WITHOUT_COMPILER
from .whole_jobs import write_launcher

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
    words = ["isolate", "--yes", "--stall", "2", "--confirm", "0", "--run-dir", "iso"]
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


# It trains with steps of 20 ms, and at step 40 rank 0 alone meets the others, unless the workers
# that load its data are turned off.
LATE = """
import time
import torch, torch.distributed as dist
from torch.utils.data import DataLoader

def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loader = DataLoader(range(70), batch_size=1, num_workers=1)
    net = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for step, batch in enumerate(loader):
        optimizer.zero_grad()
        net(batch.float().view(1, 1)).sum().backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        time.sleep(0.02)
        if step == 40 and rank == 0 {also}:
            dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""


def isolate_late(
    folder: Path, package: Path, start: Callable[..., subprocess.Popen[str]], also: str, *words: str
) -> tuple[int, dict[str, Any], str]:
    (folder / "train.py").write_text(WITHOUT_COMPILER + LATE.replace("{also}", also))
    launcher = write_launcher(folder)
    environ = {name: value for name, value in os.environ.items() if "HANGBISECT_" not in name}
    options = ["isolate", "--yes", "--stall", "3", "--confirm", "0", "--run-dir", "iso", *words]
    command = [sys.executable, str(package), *options, "--", launcher, "train.py"]
    process = start(*command, cwd=folder, env=environ)
    _, err = process.communicate(timeout=2 * LIMIT)
    found = json.loads((folder / "iso" / "isolation.json").read_text())
    return process.returncode, found, err


def test_a_hang_at_step_40_is_a_hang(
    tmp_path: Path, package: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    pytest.importorskip("torch")
    status, found, err = isolate_late(tmp_path, package, start, "", "--only", "num_workers")
    assert found["outcome"] == "hangs_all_safe", err
    # Then probes describe it: on one rank nobody is met, and it comes to its end.
    assert [trial["result"] for trial in found["trials"]][:2] == ["hang", "hang"], err
    assert found["seen"]["cause"] == "rank-conditional-collective"
    assert 30 <= found["seen"]["place"]["trained"] <= 41
    assert status == 3


def test_what_avoids_a_hang_at_step_40_is_found_and_a_start_ends_past_that_step(
    tmp_path: Path, package: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    pytest.importorskip("torch")
    also = "and loader.num_workers"
    status, found, err = isolate_late(tmp_path, package, start, also, "--only", "num_workers")
    assert status == 0, err
    (change,) = found["changes"]
    assert (change["toggle"], change["value"]) == ("num_workers", "0")
    assert {trial["result"] for trial in found["trials"]} == {"hang", "pass"}
    assert err.count("watched to its end") == 1


# Rank 1 waits 14 s for a file that nobody can tell to come, as for a slow disk.
SLOW_SAVE = """
def save(rank):
    import socket, threading
    if rank == 1:
        mine, theirs = socket.socketpair()
        timer = threading.Timer(14, theirs.send, [b"x"])
        timer.daemon = True
        timer.start()
        mine.recv(1)
    return False
"""


def test_a_silence_in_training_that_ends_is_no_hang_for_it(
    tmp_path: Path, package: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "saving.py").write_text(SLOW_SAVE)
    also = "or step == 40 and __import__('saving').save(rank)"
    words = ("--stall", "6", "--max-trials", "1")
    status, found, err = isolate_late(tmp_path, package, start, "and False " + also, *words)
    assert [trial["result"] for trial in found["trials"]] == ["pass"], err
    assert status == 1
