"""The main pipeline with the real libraries, on one process and on two."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest
from hangbisect.base.pipeline import find_pipeline

from .verdicts import REACHED

# Not imported: each worker reads this file, and that takes seconds.
if importlib.util.find_spec("pytorch_lightning") is None:
    pytest.skip("no Lightning", allow_module_level=True)

DEADLINE = 280.0  # seconds for a walk, on a busy machine
PHASES = [phase.name for phase in find_pipeline("startup").table[-1].phases]
# A step of one's own that counts W&B's processes while all of them are there.
COUNT = """
import psutil

def count(given):
    names = [child.name() for child in psutil.Process().children(recursive=True)]
    given.context.say(f"{sum(name.startswith('wandb-core') for name in names)} of wandb-core")
    return []
"""


class Walk:
    """Starts a walk in a folder of its own, without W&B credentials, and returns its output."""

    def __init__(self, start: object, package: Path, tmp_path: Path) -> None:
        self._start, self._package, self._folder = start, package, tmp_path
        (tmp_path / "counting.py").write_text(COUNT)

    def __call__(self, *words: str, ranks: int = 0) -> str:
        launcher = ["-m", "torch.distributed.run", f"--nproc_per_node={ranks}"] if ranks else []
        clean = {n: v for n, v in os.environ.items() if not n.startswith(("WANDB_", "HANGBISECT_"))}
        process = self._start(  # type: ignore[operator]
            *(sys.executable, *launcher, self._package, "--fast-dev-run", "2"),
            *("--run-dir", self._folder / "run", *words),
            env={**clean, "HOME": str(self._folder), "NETRC": str(self._folder / ".netrc")},
            cwd=self._folder,
        )
        out, err = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0, out + err
        return str(out)


@pytest.fixture
def walk(start: object, package: Path, tmp_path: Path) -> Walk:
    return Walk(start, package, tmp_path)


def lines_of(rank: int, out: str) -> list[str]:
    return re.findall(rf"\[R{rank}/\d+\]\[LR\d+\]\[PID:\d+\] (.*)", out)


def assert_wandb_started(out: str, folder: Path, processes: int) -> None:
    """Assert that so many ranks have started W&B, each a process of its own and a run."""
    assert sum(int(n) for n in re.findall(r"(\d) of wandb-core", out)) == processes
    assert out.count("W&B finished") == processes
    assert len([*(folder / "run" / "logs").glob("wandb/offline-run-*")]) == processes


def test_every_rank_walks_every_checkpoint_and_phase_and_starts_wandb_if_each_is_to(
    walk: Walk, tmp_path: Path
) -> None:
    out = walk("--wandb", "every-rank", "--use", "callbacks=counting:count", ranks=2)
    assert_wandb_started(out, tmp_path, 2)
    for rank in (0, 1):
        said = lines_of(rank, out)
        checkpoints = [line for line in said if line.startswith("CHECKPOINT")]
        expected = [f"CHECKPOINT {c.number}: {c.title}" for c in find_pipeline("startup").table[1:]]
        assert checkpoints == expected
        assert [line[6:] for line in said if line.startswith("Phase ")] == PHASES
        assert "Process group ready: gloo, 2 ranks" in said
    assert out.count("Environment at the start") == 2
    assert out.count("Environment before the Trainer") == 2
    assert out.count("W&B runs offline: no account") == 2


TOLD = """
def told(given):
    model, data = given.model, given.data_module
    attention = model.config._attn_implementation
    switches = model.is_gradient_checkpointing, data.packing, data.pin_memory
    given.context.say(f"{attention}, {switches}")
    return given.context.args.accelerator

def never(given):
    raise AssertionError("--callbacks none leaves one's own out too")
"""


def test_on_one_process_each_component_of_the_model_and_the_data_can_be_changed(
    walk: Walk, tmp_path: Path
) -> None:
    (tmp_path / "telling.py").write_text(TOLD)
    out = walk(
        *("--attention", "eager", "--gradient-checkpointing", "on", "--packing", "on"),
        *("--pin-memory", "on", "--callbacks", "none", "--wandb", "off", "--accelerator", "cpu"),
        *("--use", "accelerator=telling:told", "--use", "callbacks=telling:never"),
        *("--skip", "logs_directory"),
    )
    said = lines_of(0, out)
    assert f"{REACHED['logs_directory']} (skipped)" in said
    assert REACHED["training"] in said
    assert "eager, (True, True, True)" in said
    assert "No callbacks" in said
    assert "Trained 2 steps" in said
    assert_wandb_started(out, tmp_path, 0)


def test_lightning_starts_the_other_ranks_itself(walk: Walk, tmp_path: Path) -> None:
    out = walk("--devices", "2", "--use", "callbacks=counting:count")
    assert_wandb_started(out, tmp_path, 1)  # by Lightning's logger
    assert out.count("Process group ready: gloo, 2 ranks") == 2
    assert out.count(REACHED["training"]) == 2


def test_model_tokenizer_and_data_may_be_ones_own_and_rank_0_alone_starts_wandb(
    walk: Walk, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    from hangbisect.pipelines.model_steps import END_OF_TEXT, MODEL_CONFIG, TOKENIZER

    transformers.PreTrainedTokenizerFast(
        tokenizer_file=TOKENIZER, eos_token=END_OF_TEXT
    ).save_pretrained(tmp_path / "mine")
    config = transformers.AutoConfig.from_pretrained(MODEL_CONFIG)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "mine")
    (tmp_path / "mine.txt").write_text("one line\nanother line\n")
    out = walk(
        *("--tokenizer", "mine", "--model", "mine", "--data", "mine.txt", "--hub", "offline"),
        *("--num-workers", "1", "--worker-start", "spawn", "--backend", "gloo"),
        *("--wandb", "rank0", "--use", "callbacks=counting:count"),
        ranks=2,
    )
    assert out.count("transformers.AutoModelForCausalLM.from_pretrained with mine") == 2
    assert out.count("HF_HUB_OFFLINE=1") >= 2
    assert out.count(REACHED["training"]) == 2
    assert_wandb_started(out, tmp_path, 1)
