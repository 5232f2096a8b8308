"""The main pipeline with the real libraries, on one process and on two."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from hangbisect.base.pipeline import find_pipeline
from jobs import Ended

from .verdicts import REACHED, check, shown
from .whole_jobs import ONE_THREAD, Jobs

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
    """Starts walks in a folder, without W&B credentials; each ends well and leaves nothing."""

    def __init__(self, jobs_here: Jobs) -> None:
        self._jobs = jobs_here
        self.folder = jobs_here.folder()
        (self.folder / "counting.py").write_text(COUNT)

    def __call__(self, *words: str, ranks: int = 0) -> Ended:
        home = {"HOME": str(self.folder), "NETRC": str(self.folder / ".netrc"), **ONE_THREAD}
        job = self._jobs.start(
            *("--fast-dev-run", "2", *words),
            folder=self.folder,
            ranks=ranks,
            environ=home,
        )
        ended = job.end(DEADLINE)
        check(ended, "ok")
        assert ended.status == 0, shown(ended)
        return ended


@pytest.fixture
def walk(jobs_here: Jobs) -> Walk:
    return Walk(jobs_here)


def lines_of(rank: int, out: str) -> list[str]:
    return re.findall(rf"\[R{rank}/\d+\]\[LR\d+\]\[PID:\d+\] (.*)", out)


def assert_wandb_started(out: str, folder: Path, processes: int) -> None:
    """Assert that so many ranks have started W&B, each a process of its own and a run."""
    assert sum(int(n) for n in re.findall(r"(\d) of wandb-core", out)) == processes
    assert len([*(folder / "run" / "logs").glob("wandb/offline-run-*")]) == processes


def test_every_rank_walks_every_checkpoint_and_phase_with_a_model_tokenizer_and_data_of_ones_own(
    walk: Walk,
) -> None:
    write_own_model(walk.folder / "mine")
    (walk.folder / "mine.txt").write_text("one line\nanother line\n")
    ended = walk(
        *("--tokenizer", "mine", "--model", "mine", "--data", "mine.txt", "--hub", "offline"),
        *("--num-workers", "1", "--backend", "gloo"),
        *("--wandb", "every-rank", "--use", "callbacks=counting:count"),
        ranks=2,
    )
    out = ended.out
    assert_wandb_started(out, walk.folder, 2)
    assert out.count("W&B finished") == 2
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
    assert out.count("transformers.AutoModelForCausalLM.from_pretrained with mine") == 2
    assert out.count("HF_HUB_OFFLINE=1") >= 2
    assert "OK  startup, 2 ranks" in ended.err
    assert "not exercised: W&B online" in ended.err


def write_own_model(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from hangbisect.pipelines.model_steps import END_OF_TEXT, MODEL_CONFIG, TOKENIZER

    transformers.PreTrainedTokenizerFast(
        tokenizer_file=TOKENIZER, eos_token=END_OF_TEXT
    ).save_pretrained(folder)
    config = transformers.AutoConfig.from_pretrained(MODEL_CONFIG)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)


# In the place of the steps before W&B's, which import most of the libraries.
NOTHING = "def nothing(given):\n    return None\n"
BEFORE_WANDB = ("tokenizer", "model", "lightning_module", "data_module", "accelerator")


def test_rank_0_alone_starts_wandb_if_it_is_to(light_jobs: Jobs) -> None:
    walk = Walk(light_jobs)
    (walk.folder / "mine.py").write_text(NOTHING)
    left_out = [word for step in BEFORE_WANDB for word in ("--use", f"{step}=mine:nothing")]
    ended = walk(
        *("--wandb", "rank0", *left_out, "--use", "callbacks=counting:count"),
        *("--until", "memory_callback"),
        ranks=2,
    )
    assert_wandb_started(ended.out, walk.folder, 1)
    assert "No W&B on this rank: logger=False" in lines_of(1, ended.out)


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
    walk: Walk,
) -> None:
    (walk.folder / "telling.py").write_text(TOLD)
    out = walk(
        *("--attention", "eager", "--gradient-checkpointing", "on", "--packing", "on"),
        *("--num-workers", "1", "--worker-start", "spawn"),
        *("--pin-memory", "on", "--callbacks", "none", "--wandb", "off", "--accelerator", "cpu"),
        *("--use", "accelerator=telling:told", "--use", "callbacks=telling:never"),
        *("--skip", "logs_directory"),
    ).out
    said = lines_of(0, out)
    assert f"{REACHED['logs_directory']} (skipped)" in said
    assert REACHED["training"] in said
    assert "eager, (True, True, True)" in said
    assert "No callbacks" in said
    assert "Trained 2 steps" in said
    assert_wandb_started(out, walk.folder, 0)
    assert "W&B finished" not in out


def test_lightning_starts_the_other_ranks_itself(walk: Walk) -> None:
    ended = walk("--devices", "2", "--use", "callbacks=counting:count")
    assert_wandb_started(ended.out, walk.folder, 1)  # by Lightning's logger
    assert ended.out.count("W&B finished") == 1
    assert ended.out.count("Process group ready: gloo, 2 ranks") == 2
    assert ended.out.count(REACHED["training"]) == 2
    assert "OK  startup, 2 ranks" in ended.err
