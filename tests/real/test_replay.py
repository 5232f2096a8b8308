"""One module alone, on inputs that the real hooks captured: its walk, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jobs
import pytest
from hangbisect.base.pipeline import find_pipeline

from ..transcripts import block, is_printed
from .whole_jobs import ONE_THREAD, write_launcher

DEADLINE = 280.0  # seconds, on a busy machine
PAGE = "how-to/one-module-alone.md"
REPLAY = ("--pipeline", "replay", "--accelerator", "cpu")
PHASES = [phase.name for row in find_pipeline("replay").table for phase in row.phases]
ACTOR = """
import os

import torch

import hangbisect

library = torch.library.Library("actors", "FRAGMENT")
library.define("varlen_forward(Tensor q, Tensor ends, int max_seqlen_q) -> Tensor")
library.impl("varlen_forward", lambda q, ends, longest: q / longest, "CompositeExplicitAutograd")
library.impl("varlen_forward", lambda q, ends, longest: torch.empty_like(q), "Meta")


class Actor(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(128, 32)
        self.head = torch.nn.Linear(32, 128)

    def forward(self, input_ids, attention_mask=None, ends=None):
        values = self.embedding(input_ids)
        if ends is not None:
            longest = (ends[1:] - ends[:-1]).max()
            values = torch.ops.actors.varlen_forward(values, ends, longest)
        return {"logits": self.head(values)}


def build(given):
    return Actor()


if __name__ == "__main__":
    rank = int(os.environ["RANK"])
    listener = hangbisect.capture(Actor())
    for number in range(3 + rank):
        ids = torch.randint(0, 128, (2, 8 + number))
        if (rank, number) == (1, 3):
            listener(ids[:1], ends=torch.tensor([0, 3, 11]))
        else:
            listener(ids, attention_mask=torch.ones_like(ids))
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory, package: Path) -> Path:
    """Capture three inputs of rank 0 and four of rank 1, the last of them packed; return where."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "actor.py").write_text(ACTOR)
    launcher = write_launcher(folder)
    for command in ((sys.executable, package, "capture", "on"), (launcher, "actor.py")):
        environ = {**jobs.clean_environ(), **ONE_THREAD, "CUDA_VISIBLE_DEVICES": ""}
        subprocess.run(command, cwd=folder, env=environ, check=True, timeout=DEADLINE)
    return folder


@pytest.fixture
def walk(start: Callable[..., Any], package: Path, tmp_path: Path) -> Callable[..., Any]:
    """Start a program of ours in a folder of its own; return its status and its output."""

    def run(*words: str, launcher: str = sys.executable) -> tuple[int, str, str]:
        environ = jobs.clean_environ() | ONE_THREAD
        process = start(launcher, package, *words, env=environ, cwd=tmp_path)
        out, err = process.communicate(timeout=DEADLINE)
        return process.returncode, str(out), str(err)

    return run


@pytest.fixture
def alone(walk: Callable[..., Any], captured: Path, tmp_path: Path) -> Callable[..., Any]:
    """Walk with the module of the job, in a folder that has a copy of the captures."""
    shutil.copy(captured / "actor.py", tmp_path)
    shutil.copytree(captured / "captures", tmp_path / "captures")

    def run(*words: str, **how: Any) -> tuple[int, str, str]:
        status, out, err = walk(
            *REPLAY, "--use", "module=actor:build", "--run-dir", "run", *words, **how
        )
        return status, str(out), str(err)

    return run


def results(out: str, rank: int = 0) -> dict[str, Any]:
    """Return what a rank has written of its inputs, where it says so."""
    (path,) = re.findall(rf"As JSON: (.*/replay-rank{rank}\.json)", out)
    found: dict[str, Any] = json.loads(Path(path).read_text())
    return found


def test_two_ranks_replay_their_own_inputs_and_do_as_many_forwards(
    alone: Callable[..., Any], tmp_path: Path
) -> None:
    status, out, err = alone("--backward", launcher=write_launcher(tmp_path))
    assert status == 0, out + err
    for rank in (0, 1):
        said = re.findall(rf"\[R{rank}/\d+\]\[LR\d+\]\[PID:\d+\] (.*)", out)
        expected = [f"CHECKPOINT {c.number}: {c.title}" for c in find_pipeline("replay").table[1:]]
        assert [line for line in said if line.startswith("CHECKPOINT")] == expected
        assert [line[6:] for line in said if line.startswith("Phase ")] == PHASES
        inputs = results(out, rank)["inputs"]
        assert [one["captured_on"] for one in inputs] == [rank] * (3 + rank)
        assert [one["difference"] for one in inputs] == [0.0] * (3 + rank)
        assert all(one["backward_s"] > 0 and one["tokens"] > 0 for one in inputs)
    assert "It begins again after 3, so that every rank does 4 forwards" in out


def test_one_rank_takes_those_of_two_and_leaves_out_what_is_no_capture(
    alone: Callable[..., Any], tmp_path: Path
) -> None:
    captures = tmp_path / "captures"
    first, *_ = sorted(captures.glob("*-rank0-*.inputs.safetensors"))
    (captures / "cut-rank0-a.inputs.safetensors").write_bytes(first.read_bytes()[:-9])
    from safetensors.torch import save_file
    from torch import zeros

    save_file({"weight": zeros(2)}, captures / "foreign-rank0-a.safetensors")
    hostile = b"cos\nsystem\n(S'touch executed'\ntR."
    (captures / "hostile-rank0-a.inputs.safetensors").write_bytes(hostile)
    status, out, err = alone("--quiet")
    assert status == 0, out + err
    assert not (tmp_path / "executed").exists()
    for name in ("cut", "foreign", "hostile"):
        (line,) = [line for line in out.splitlines() if f"/{name}-rank0-a." in line]
        assert "Left out: " in line
    assert "not exercised: 3 files left out" in out + err
    assert "Captured on 2 ranks, replayed on 1" in out
    ranks = sorted(one["captured_on"] for one in results(out)["inputs"])
    assert ranks == [0, 0, 0, 1, 1, 1, 1]
    assert "Input 2 of 7" not in out  # --quiet


def test_the_known_bad_combination_is_refused_before_anything_is_built(
    alone: Callable[..., Any],
) -> None:
    status, out, err = alone(
        "--compile", "inductor", "--attention", "flash", "--packing", "on"
    )  # fmt: skip
    assert status == 2
    assert "About to call actor.build" not in out
    assert is_printed(block(PAGE, "hangbisect: --compile"), out + err), out + err


def test_compilation_is_what_makes_one_of_the_inputs_fail(
    walk: Callable[..., Any], alone: Callable[..., Any], tmp_path: Path, package: Path
) -> None:
    command = (sys.executable, str(package), *REPLAY, "--use", "module=actor:build")
    status, out, err = walk(
        *("isolate", "--crash", "--only", "compile", "--confirm", "0", "--run-dir", "iso"),
        *("--", *command, "--rank", "1", "--compile", "eager", "--packing", "on"),
    )
    assert status == 0, out + err
    found = json.loads((tmp_path / "iso" / "isolation.json").read_text())
    assert [(c["toggle"], c["value"]) for c in found["changes"]] == [("compile", "off")]
    assert found["seen"]["cause"] == "fake-tensor"
    assert found["seen"]["place"]["checkpoint"] == "replay"
    assert found["seen"]["place"]["phase"] == "steady"  # not the first input


def test_a_module_is_saved_and_used_again_with_another_setting(
    walk: Callable[..., Any],
) -> None:
    status, out, err = walk(
        *(*REPLAY, "--run-dir", "run", "--save-module", "saved", "--save-outputs", "kept")
    )
    assert status == 0, out + err
    missing = "a module of yours (a small model), captured inputs (one was made)"
    assert f"not exercised: {missing}" in out + err
    again = ("--run-dir", "run", "--weights", "saved", "--outputs", "kept", "--packing", "on")
    status, out, err = walk(*REPLAY, *again)
    assert status == 0, out + err
    assert results(out)["inputs"][0]["difference"] < 1e-4


def test_what_differs_by_more_than_is_tolerated_is_a_crash(alone: Callable[..., Any]) -> None:
    status, out, err = alone("--rank", "0", "--precision", "bf16", "--tolerance", "1e-4")
    assert status == 5, out + err
    assert "more than --tolerance 0.0001" in err
    assert results(out)["inputs"][0]["difference"] > 1e-4


def test_it_walks_under_deepspeed(alone: Callable[..., Any], tmp_path: Path) -> None:
    deepspeed = Path(sys.executable).parent / "deepspeed"
    if not deepspeed.exists():
        pytest.skip("needs deepspeed: pip install deepspeed")
    done = subprocess.run(
        [
            *(deepspeed, "--num_accelerators=1", "--module", "hangbisect", *REPLAY),
            *("--use", "module=actor:build", "--rank", "0", "--run-dir", "run"),
        ],
        cwd=tmp_path,
        env={**jobs.clean_environ(), **ONE_THREAD, "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Process group: gloo, 1 rank" in done.stdout
    assert len(results(done.stdout)["inputs"]) == 3
