"""The main pipeline: everything that happens until a language model trains, step by step.

This file is the table. Each step is a function in one of the modules beside it.
"""

from __future__ import annotations

import argparse

from ..base.checkpoints import Checkpoint, Phase
from ..base.pipeline import Pipeline, Step
from ..toggles.table import toggles_of
from . import data_steps, model_steps, shared_steps, trainer_steps, wandb_start
from .trainer_steps import memory_callback

# Deadlines in seconds: half a minute for what is local, minutes for what downloads, loads or
# compiles. W&B's is below its own time limit (init_timeout, 90 s), so that we see it waiting.
_PHASES = (
    Phase("launch", "fit", 60),
    Phase("process_group", "strategy", 120),
    Phase("prepare_data", "data", 600),
    Phase("setup", "data", 300),
    Phase("wrap", "strategy", 120),
    Phase("first_batch", "data", 120),
    Phase("first_backward", "fit", 300),
    Phase("first_step", "fit", 120),
    Phase("steady", "fit", None),
    Phase("teardown", "fit", 120),
)

_TRAINING = Checkpoint(12, "training", "Training finished", "fit", 600, phases=_PHASES)


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


def _step(number: int, name: str, title: str, component: str, deadline: float) -> Checkpoint:
    suspect = name in ("wandb_logger", "trainer")
    return Checkpoint(number, name, title, component, deadline, suspect=suspect)


PIPELINE = Pipeline(
    name="startup",
    launcher=_step(0, "launcher", "Ranks started", "launcher", 120),
    steps=(
        Step(_step(1, "script", "Script started", "interpreter", 30), shared_steps.script),
        Step(_step(2, "arguments", "Args parsed", "arguments", 30), shared_steps.arguments),
        Step(
            _step(3, "logs_directory", "Logs directory ready", "filesystem", 30),
            shared_steps.logs_directory,
            skippable=True,
        ),
        Step(_step(4, "tokenizer", "Tokenizer loaded", "hub", 300), model_steps.tokenizer),
        Step(_step(5, "model", "Model created", "model", 900), model_steps.model),
        Step(
            _step(6, "lightning_module", "LLMModule ready", "lightning", 120),
            model_steps.lightning_module,
        ),
        Step(_step(7, "data_module", "DataModule ready", "data", 60), data_steps.data_module),
        Step(
            _step(8, "accelerator", "Accelerator configured", "accelerator", 60),
            data_steps.accelerator,
        ),
        Step(
            _step(9, "wandb_logger", "WandbLogger ready", "wandb", 60),
            wandb_start.wandb_logger,
            skippable=True,
        ),
        Step(
            _step(10, "memory_callback", "MemoryLoggingCallback ready", "callbacks", 30),
            memory_callback,
            skippable=True,
            given_up=("callbacks", "none"),
        ),
        Step(_step(11, "trainer", "Trainer ready", "trainer", 60), trainer_steps.trainer),
        Step(_TRAINING, trainer_steps.training),
    ),
    add_arguments=add_arguments,
    shows_itself="first_step",
    aliases=(("callbacks", "memory_callback"), ("logger", "wandb_logger")),
)
