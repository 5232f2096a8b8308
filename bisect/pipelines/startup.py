"""The main pipeline: everything that happens until a language model trains, step by step.

Its table is base/startup_table.py. Each step is a function in one of the modules beside this one.
"""

from __future__ import annotations

import argparse

from ..base.pipeline import Pipeline, Step
from ..base.startup_table import STARTUP
from ..toggles.table import toggles_of
from . import data_steps, model_steps, shared_steps, trainer_steps, wandb_start

# What is done before each checkpoint is a function of its name.
_RUNS = (
    *(shared_steps.script, shared_steps.arguments, shared_steps.logs_directory),
    *(model_steps.tokenizer, model_steps.model, model_steps.lightning_module),
    *(data_steps.data_module, data_steps.accelerator, wandb_start.wandb_logger),
    *(trainer_steps.memory_callback, trainer_steps.trainer, trainer_steps.training),
)
_SKIPPABLE = ("logs_directory", "wandb_logger", "memory_callback")
_GIVEN_UP = {"memory_callback": ("callbacks", "none")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this pipeline, and the toggles that its steps read."""
    from ..base.argument_types import count
    from ..toggles.table import add_toggles

    group = parser.add_argument_group("the pipeline")
    for flag, least, default, help in (
        ("--batch-size", 1, 32, "examples a batch, on each rank"),
        ("--max-steps", 1, 10000, "training steps"),
        ("--fast-dev-run", 0, 0, "train on so many batches only; 0: off"),
        ("--devices", 1, None, "without a launcher: ranks that Lightning starts (1)"),
    ):
        shown = f"{help} ({default})" if default is not None else help
        group.add_argument(flag, metavar="N", type=count(flag, least), default=default, help=shown)
    for flag, metavar, help in (
        ("--tokenizer", "NAME_OR_PATH", "through AutoTokenizer (a small one that ships)"),
        ("--model", "NAME_OR_PATH", "through AutoModelForCausalLM (a small GPT-2 shape)"),
        ("--data", "FILE", "text to train on (a page that ships)"),
        ("--logs-path", "DIR", "the job's own logs (logs, in the run folder)"),
    ):
        group.add_argument(flag, metavar=metavar, help=help)
    add_toggles(group, toggles_of("startup"))


def _make_steps() -> tuple[Step, ...]:
    runs = {run.__name__: run for run in _RUNS}
    return tuple(
        Step(row, runs[row.name], row.name in _SKIPPABLE, _GIVEN_UP.get(row.name))
        for row in STARTUP[1:]
    )


PIPELINE = Pipeline(
    name="startup",
    steps=_make_steps(),
    add_arguments=add_arguments,
    shows_itself="first_step",
    aliases=(("callbacks", "memory_callback"), ("logger", "wandb_logger")),
)
