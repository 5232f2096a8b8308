"""What the pages on scripts of a user's own show, made here by real jobs."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from ..conftest import DEADLINE, Start
from ..transcripts import DOCS, block, is_printed, neutral
from .whole_jobs import write_launcher

SLEEPS = """\
import argparse
import time

import torch
import torch.distributed as dist


def prepare(rank):
    if rank == 1:
        time.sleep(3600)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.parse_args()
    dist.init_process_group("gloo")
    prepare(dist.get_rank())
    dist.all_reduce(torch.ones(1))


main()
"""
WANDB = """\
import wandb

run = wandb.init(project="demo")
print("training")
"""
LIGHTNING = """\
import time

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def training_step(self, batch, index):
        return self.layer(batch[0]).sum()

    def on_train_start(self):
        if self.global_rank == 1:
            open("ready", "w").close()
            time.sleep(3600)


if __name__ == "__main__":
    data = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=4)
    off = dict(logger=False, enable_checkpointing=False)
    trainer = pl.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, **off)
    trainer.fit(Model(), data)
"""
# In the place of a training: what is tested is the step of CI.
IN_CI = """\
import os, sys, time
assert sys.argv[1:] == ["--max-steps", "5"]
if os.environ["RANK"] == os.environ["STUCK"]:
    time.sleep(1000)
"""


@pytest.fixture
def environ() -> dict[str, str]:
    """The environment of a user: programs of this Python are found, and nothing is ours."""
    ours = ("HANGBISECT_", "WANDB_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return clean | {"PATH": path, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


@pytest.fixture
def proxy() -> Iterator[str]:
    """A proxy that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def ours(package: Path, *words: str) -> tuple[str, ...]:
    return (sys.executable, str(package), *words)


def test_a_script_under_run_prints_its_steps_and_the_verdict(
    start: Start, environ: dict[str, str], tmp_path: Path, package: Path
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(SLEEPS)
    launcher = write_launcher(tmp_path)
    command = (launcher, "--standalone", "--nproc_per_node=2", "train.py", "--lr", "0.2")
    words = ours(package, "run", "--stall", "4", "--run-dir", "run", "--", *command)
    with open(tmp_path / "out", "w+") as out, open(tmp_path / "err", "w+") as err:
        job = start(*words, cwd=tmp_path, env=environ, stdout=out, stderr=err)
    shown = block("how-to/your-own-script.md", "[10:")
    end = time.monotonic() + DEADLINE
    while not is_printed(shown, neutral(said := (tmp_path / "err").read_text())):
        assert job.poll() is None, said
        assert time.monotonic() < end, said
        time.sleep(0.5)
    assert (tmp_path / "out").read_text() == ""


def test_wandb_behind_a_silent_proxy_is_seen_by_doctor_and_by_run(
    start: Start, environ: dict[str, str], proxy: str, tmp_path: Path, package: Path
) -> None:
    pytest.importorskip("wandb")
    (tmp_path / "train.py").write_text(WANDB)
    free = {name: value for name, value in environ.items() if not name.lower().endswith("_proxy")}
    there = free | {"https_proxy": proxy, "WANDB_API_KEY": "0123456789" * 4}
    there |= {"HF_HUB_OFFLINE": "1", "WANDB_CONFIG_DIR": str(tmp_path)}
    watch = ("--stall", "4", "--timeout", "wandb_init=6", "--on-hang", "end", "--run-dir", "run")
    words = ours(package, "run", *watch, "--", sys.executable, "train.py")
    job = start(*words, cwd=tmp_path, env=there)
    doctor = start(*ours(package, "doctor"), cwd=tmp_path, env=there)
    said, _ = doctor.communicate(timeout=DEADLINE)
    page = "how-to/wandb-behind-a-proxy.md"
    assert is_printed(block(page, "problem "), said), said
    _, err = job.communicate(timeout=DEADLINE)
    assert job.returncode == 3, err
    # Only here the proxy may be a process of the same machine.
    printed = re.sub(r", [^,\n]+ \(\d+\) is at its other end", "", neutral(err))
    assert is_printed(block(page, "HANG "), printed), err


def test_ranks_that_lightning_started_are_found_by_attach(
    start: Start, environ: dict[str, str], tmp_path: Path, package: Path
) -> None:
    pytest.importorskip("pytorch_lightning")
    (tmp_path / "train.py").write_text(LIGHTNING)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    job = start(sys.executable, "train.py", cwd=tmp_path, env=environ, **quiet)
    end = time.monotonic() + DEADLINE
    while not (tmp_path / "ready").exists():
        assert job.poll() is None
        assert time.monotonic() < end
        time.sleep(0.1)
    attach = start(*ours(package, "attach", str(job.pid)), cwd=tmp_path, env=environ)
    out, err = attach.communicate(timeout=DEADLINE)
    assert attach.returncode == 4, out + err
    shown = block("how-to/python-train-and-notebooks.md", "SILENT")
    assert is_printed(shown, neutral(out)), out
    assert psutil.Process(job.pid).is_running()


@pytest.mark.parametrize(("stuck", "status"), [("", 0), ("1", 4)], ids=["healthy", "silent"])
def test_the_step_of_ci_ends_well_or_with_the_verdict_of_what_stands_still(
    stuck: str, status: int, start: Start, environ: dict[str, str], tmp_path: Path, package: Path
) -> None:
    pytest.importorskip("torch")
    step, kept = steps_of_ci()
    (tmp_path / "train.py").write_text(IN_CI)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "hangbisect"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {package} "$@"\n')
    program.chmod(0o755)
    write_launcher(program.parent)
    path = f"{program.parent}{os.pathsep}{environ['PATH']}"
    said = {name: str(value) for name, value in step["env"].items()}
    quick = {"HANGBISECT_STALL": "3", "STUCK": stuck, "PATH": path}
    assert "HANGBISECT_STALL" in said
    run = step["run"].replace("--limit 900", "--limit 20") if stuck else step["run"]
    shell = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", run)
    job = start(*shell, cwd=tmp_path, env=environ | said | quick)
    out, err = job.communicate(timeout=DEADLINE)
    assert job.returncode == status, out + err
    verdict = json.loads((tmp_path / kept["with"]["path"] / "verdict.json").read_text())
    assert verdict["outcome"] == ("silent" if stuck else "ok")


def steps_of_ci() -> list[dict[str, Any]]:
    """Return the steps that the page on CI shows, as GitHub reads them."""
    page = (DOCS / "how-to" / "in-ci.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    steps: list[dict[str, Any]] = yaml.safe_load(shown)
    return steps
