"""The pipeline of a model that generates, with the real libraries: slow, and hung."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base.pipeline import find_pipeline
from hangbisect.zoo.parts import servers

from ..transcripts import DOCS, plain

# Not imported: each worker reads this file, and that takes seconds.
if not all(importlib.util.find_spec(name) for name in ("transformers", "accelerate")):
    pytest.skip("no transformers, or no accelerate", allow_module_level=True)

DEADLINE = 300.0  # seconds, on a busy machine
LOOP = """
def step(given):
    prompt = f"day {given.number}: the storage holds {given.number * 7} boxes. What now?"
    reply = given.generate(prompt)
    given.context.say(f"an action of {len(reply) > 0:d}")
"""
OWN = ("HANGBISECT_", "HF_", "HUGGING", "TRANSFORMERS_")


def transcript(begins: str) -> list[str]:
    """Return the lines of the page's block of code whose first line is about that."""
    page = (DOCS / "how-to" / "model-loads-then-silence.md").read_text(encoding="utf-8")
    blocks: list[str] = re.findall(r"^```\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (found,) = [one for one in blocks if begins in one.partition("\n")[0]]
    return found.splitlines()


def plainer(line: str) -> str:
    """Return a line without its numbers, and without the units that follow from their size."""
    line = re.sub(r"0 s, 0 min", "0 s", plain(line))
    return re.sub(r"0 (?:bytes?|[KMG]iB)", "0 bytes", line)


@pytest.fixture
def ours(start: Callable[..., Any], package: Path, tmp_path: Path) -> Callable[..., Any]:
    def run(*words: str, **variables: str) -> Any:
        clean = {name: v for name, v in os.environ.items() if not name.startswith(OWN)}
        environ = {**clean, "OMP_NUM_THREADS": "1", **variables}
        process = start(sys.executable, package, *words, cwd=tmp_path, env=environ)
        out, err = process.communicate(timeout=DEADLINE)
        return process.returncode, out, err

    return run


def test_a_loop_around_an_offloaded_model_is_told_step_by_step(
    ours: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    status, out, err = ours(
        *("--pipeline", "generation", "--run-dir", "run", "--use", "step=loop:step"),
        *("--max-memory", "cpu=3MB", "--max-new-tokens", "8", "--steps", "100000"),
        *("--slow-generation", "0.01", "--past", "action", "--stall", "60"),
    )
    assert status == 0, out + err
    said = re.findall(r"\[PID:\d+\] (.*)", out)
    reached = [line for line in said if line.startswith("CHECKPOINT")]
    table = find_pipeline("generation").table
    assert reached == [f"CHECKPOINT {row.number}: {row.title}" for row in table[1:-1]]
    everything = "\n".join(said)
    for expected in (
        r"About to load LlamaForCausalLM from \S+: device map auto, dtype auto \(float32\), "
        r"6\.\d+ MiB in 5 shards; about \S+ s at \S+ \S+/s, as measured",
        r"5 of 5 shards read, 57 of 57 weights",
        r"All shards are read, and from_pretrained has not returned",
        r"Offloaded to disk: \d+ parameters, \S+ MiB \(model\.layers\.\d.*expected with offload",
        r"No GPU in use: memory of the process",
        r"Test generation: output of shape \[1, 13\]",
        r"each token moves \S+ MiB from the disk at \S+ \S+/s",
        r"Step 1: observation received",
        r"Step 1: tokenised in \S+ s: \d+ tokens",
        r"Step 1: generation has taken 0\.\d+ s so far, ",
        r"Step 1: generated 8 tokens in",
        r"Step 1: decision received",
        r"an action of 1",
        r"Step 1: action executed",
    ):
        assert re.search(expected, everything), f"{expected} not in\n{everything}"
    left = iter([plainer(line) for line in out.splitlines()])
    for begins in ("5 of 5 shards", "Parameters: 57"):
        shown = transcript(begins)
        assert len(shown) > 3
        assert all(plainer(line) in left for line in shown if line != "...")


def test_a_generation_config_that_a_silent_hub_keeps_back_is_found(
    ours: Callable[..., Any], package: Path, tmp_path: Path
) -> None:
    home = tmp_path / "hf"
    servers.fill_hub_cache(home, missing=["adapter_config.json"])
    with servers.silent_server() as port:
        status, out, err = ours(
            *("isolate", "--run-dir", "iso", "--stall", "3", "--confirm", "0"),
            *("--only", "hub", "--", sys.executable, str(package)),
            *("--pipeline", "generation", "--model", servers.HUB_REPOSITORY, "--local-files-only"),
            *("--timeout", "generation_config=12", "--until", "generation_config"),
            HF_ENDPOINT=f"http://127.0.0.1:{port}",
            HF_HOME=str(home),
        )
    assert status == 0, out + err
    found = json.loads((tmp_path / "iso" / "isolation.json").read_text())
    assert found["seen"]["place"]["checkpoint"] == "generation_config", found["seen"]
    (change,) = found["changes"]
    assert (change["toggle"], change["value"]) == ("hub", "offline")
