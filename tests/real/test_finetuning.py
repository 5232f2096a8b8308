"""The fine-tuning with the real libraries: its budget, its walk on two ranks, its crash."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base.pipeline import find_pipeline

from ..transcripts import block, is_printed
from .whole_jobs import ONE_THREAD, write_launcher

# Not imported: each worker reads this file, and that takes seconds.
if importlib.util.find_spec("peft") is None:
    pytest.skip("no peft", allow_module_level=True)

DEADLINE = 280.0
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
PAGE = "how-to/out-of-memory-then-meta-tensors.md"
SMALL = ("--pipeline", "finetuning", "--accelerator", "cpu", "--sequence-length", "32")
OFFLOADED = ("--device-map", "auto", "--max-memory", "cpu=3MB", "--gradient-checkpointing", "on")
PHASES = [
    p.name for c in find_pipeline("finetuning").table if c.name == "training" for p in c.phases
]


@pytest.fixture
def walk(start: Callable[..., Any], package: Path, tmp_path: Path) -> Callable[..., Any]:
    """Start a program of ours in a folder of its own; return its status and its output."""

    def run(*words: str, launcher: str = sys.executable) -> tuple[int, str, str]:
        clean = {n: v for n, v in os.environ.items() if not n.startswith("HANGBISECT_")}
        process = start(launcher, package, *words, env=clean | ONE_THREAD, cwd=tmp_path)
        out, err = process.communicate(timeout=DEADLINE)
        return process.returncode, str(out), str(err)

    return run


def test_the_budget_is_what_a_training_takes() -> None:
    printed = subprocess.run(
        [sys.executable, BENCHMARKS / "memory_budget.py", "quick"],
        env=os.environ | ONE_THREAD,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert "2 of 2 within 10% for the parts and 25% in all" in printed.stdout, printed


def test_two_ranks_walk_every_checkpoint_and_phase_even_if_it_is_said_not_to_fit(
    walk: Callable[..., Any], tmp_path: Path
) -> None:
    status, out, err = walk(
        *("--pipeline", "finetuning", "--accelerator", "cpu", "--batch-size", "4"),
        *("--free-memory", "40MB", "--max-steps", "2", "--examples", "1000", "--run-dir", "run"),
        launcher=write_launcher(tmp_path),
    )
    assert status == 0, out + err
    for rank in (0, 1):
        said = re.findall(rf"\[R{rank}/\d+\]\[LR\d+\]\[PID:\d+\] (.*)", out)
        expected = [
            f"CHECKPOINT {c.number}: {c.title}" for c in find_pipeline("finetuning").table[1:]
        ]
        assert [line for line in said if line.startswith("CHECKPOINT")] == expected
        assert [line[6:] for line in said if line.startswith("Phase ")] == PHASES
    prefix = r"^\[.*?\]\[R\d.*?\]\[LR.*?\]\[PID:\d+\] "
    plain = re.sub(prefix, "", out, flags=re.MULTILINE)
    assert is_printed(block(PAGE, "memory of each rank"), plain), plain
    assert "adapter_model.safetensors" in out
    assert "The whole training, as measured here: 125 steps at" in out


def test_what_cannot_work_is_refused_before_anything_is_loaded(walk: Callable[..., Any]) -> None:
    status, out, err = walk(*SMALL, *OFFLOADED, "--run-dir", "run")
    assert status == 2
    assert "About to call transformers.AutoModelForCausalLM.from_pretrained" not in out
    assert is_printed(block(PAGE, "hangbisect: --device-map"), out + err), out + err


def test_the_device_map_is_what_avoids_meta_tensors_in_backward(
    walk: Callable[..., Any], tmp_path: Path, package: Path
) -> None:
    skips = ("--skip", "preflight", "--skip", "memory_budget", "--max-steps", "1")
    one = ("--batch-size", "1")
    command = (sys.executable, str(package), *SMALL, *OFFLOADED, *skips, *one)
    status, out, err = walk(
        *("isolate", "--crash", "--only", "device_map", "--confirm", "0", "--run-dir", "iso"),
        *("--", *command),
    )
    assert status == 0, out + err
    found = json.loads((tmp_path / "iso" / "isolation.json").read_text())
    assert [(c["toggle"], c["value"]) for c in found["changes"]] == [("device_map", "none")]
    assert found["seen"]["cause"] == "meta-device"
    assert found["seen"]["place"]["phase"] == "first_backward"
    shown = [line for line in block(PAGE, "ISOLATED") if line.startswith(("change", "costs"))]
    assert is_printed(shown, out), out
    assert "it crashes with device_map=auto, not with device_map=none" in out
