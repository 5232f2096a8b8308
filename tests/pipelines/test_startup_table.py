"""The table of the main pipeline: the order, names and titles that others rely on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hangbisect.base.checkpoints import STARTUP
from hangbisect.base.pipeline import PIPELINES, find_pipeline

CONTRACT = """
launcher          Ranks started               launcher
script            Script started              interpreter
arguments         Args parsed                 arguments
logs_directory    Logs directory ready        filesystem
tokenizer         Tokenizer loaded            hub
model             Model created               model
lightning_module  LLMModule ready             lightning
data_module       DataModule ready            data
accelerator       Accelerator configured      accelerator
wandb_logger      WandbLogger ready           wandb
memory_callback   MemoryLoggingCallback ready callbacks
trainer           Trainer ready               trainer
training          Training finished           fit
"""
PHASES = (
    *("launch", "process_group", "prepare_data", "setup", "wrap", "first_batch"),
    *("first_backward", "first_step", "steady", "teardown"),
)


def test_the_table_is_the_contract() -> None:
    rows = [line.split() for line in CONTRACT.strip().splitlines()]
    expected = [(row[0], " ".join(row[1:-1]), row[-1]) for row in rows]
    table = find_pipeline("startup").table
    assert [(c.name, c.title, c.component) for c in table] == expected
    assert table == STARTUP


def test_training_has_its_phases_and_only_the_steady_one_is_never_late() -> None:
    phases = find_pipeline("startup").table[-1].phases
    assert tuple(phase.name for phase in phases) == PHASES
    assert [phase.name for phase in phases if phase.deadline is None] == ["steady"]


def test_wandb_and_the_trainer_are_the_prime_suspects() -> None:
    suspects = [c.name for c in find_pipeline("startup").table if c.suspect]
    assert suspects == ["wandb_logger", "trainer"]


def test_three_steps_may_be_skipped() -> None:
    assert find_pipeline("startup").skippable == (
        "logs_directory",
        "wandb_logger",
        "memory_callback",
    )


def test_a_pipeline_is_found_by_its_name() -> None:
    assert [find_pipeline(name).name for name in PIPELINES] == list(PIPELINES)
    with pytest.raises(KeyError):
        find_pipeline("shutdown")


def test_the_table_is_there_without_any_library(package: Path) -> None:
    code = (
        "import sys, importlib.util as u\n"
        f"s = u.spec_from_file_location('pkg', {str(package / '__init__.py')!r},"
        f" submodule_search_locations=[{str(package)!r}])\n"
        "sys.modules['pkg'] = u.module_from_spec(s)\n"
        "from pkg.base.pipeline import find_pipeline\n"
        "from pkg.rank import arguments\n"
        "find_pipeline('startup')\n"
        "roots = {name.partition('.')[0] for name in sys.modules} - {'pkg', '__main__'}\n"
        "print(sorted(roots - set(sys.stdlib_module_names)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]", done.stderr
