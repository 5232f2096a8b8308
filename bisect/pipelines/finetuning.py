"""The pipeline of a fine-tuning: a memory budget, a model, LoRA, and the first steps of a Trainer.

This file is the table. Each step is a function in one of the modules of tuning/.
"""

from __future__ import annotations

import argparse

from ..base.checkpoints import Checkpoint, Phase
from ..base.pipeline import Pipeline, Step
from . import data_steps, shared_steps
from . import model_steps as small_steps
from .generating.settings_steps import add_max_memory
from .tuning import configuration, preflight, training_steps
from .tuning.configuration import memory_size, name_list
from .tuning.training_steps import OPTIMIZERS

_TEXTS = (
    ("--model", "NAME_OR_PATH", "through AutoModelForCausalLM (a small one)"),
    ("--tokenizer", "NAME_OR_PATH", "through AutoTokenizer (the model's)"),
    ("--data", "FILE", "text to train on (a page that ships)"),
    ("--output-dir", "DIR", "for the checkpoint (logs/checkpoint, in the run folder)"),
    ("--offload-folder", "DIR", "for what --device-map puts on the disk (a temporary one)"),
)
_NUMBERS = (
    ("--max-steps", 3, "steps of the optimizer (3)"),
    (
        "--batch-size",
        8,
        "examples of each rank a step of the optimizer: micro batches are added up to it (8)",
    ),
    (
        "--examples",
        None,
        "examples of the training that is planned: how long it will take is told from the steps "
        "measured",
    ),
    ("--epochs", 1, "passes over --examples (1)"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this pipeline, and the toggles that its steps read."""
    from ..base.argument_types import choice, count
    from ..toggles.table import add_toggles, toggles_of

    group = parser.add_argument_group("the pipeline")
    add = group.add_argument
    for flag, metavar, help in _TEXTS:
        add(flag, metavar=metavar, help=help)
    for flag, default, help in _NUMBERS:
        add(flag, metavar="N", type=count(flag, 1), default=default, help=help)
    add(
        "--optimizer",
        metavar="|".join(OPTIMIZERS),
        type=choice("--optimizer", tuple(OPTIMIZERS)),
        default="adamw",
        help="AdamW, AdamW with a state in 8 bits (bitsandbytes), or plain SGD (adamw)",
    )
    add(
        "--lora-modules",
        metavar="NAME,...",
        type=name_list,
        default=[],
        help="modules that get adapters (all linear layers)",
    )
    add_max_memory(group, "14GB")
    add(
        "--free-memory",
        metavar="SIZE",
        type=memory_size("--free-memory"),
        help="what the memory budget is held against (what is free on the device)",
    )
    add_toggles(group, toggles_of("finetuning"))


# Deadlines in seconds: half a minute for what is local, minutes for what downloads, loads or runs a
# large model without data (a search for what fits does that up to 24 times).
_PHASES = (
    Phase("launch", "trainer", 120),
    Phase("first_batch", "data", 120),
    Phase("first_forward", "fit", 300),
    Phase("first_backward", "fit", 300),
    Phase("first_step", "optimizer", 120),
    Phase("steady", "fit", None),
    Phase("teardown", "trainer", 120),
)


PIPELINE = Pipeline(
    name="finetuning",
    steps=(
        Step(Checkpoint("script", "Script started", "interpreter", 30), shared_steps.script),
        Step(Checkpoint("arguments", "Args parsed", "arguments", 30), configuration.arguments),
        Step(
            Checkpoint("configuration", "Configuration read", "hub", 300),
            configuration.configuration,
        ),
        Step(
            Checkpoint("preflight", "Preflight passed", "model", 120),
            preflight.preflight,
            skippable=True,
        ),
        Step(
            Checkpoint("memory_budget", "Memory budget made", "memory", 600),
            preflight.memory_budget,
            skippable=True,
        ),
        Step(Checkpoint("tokenizer", "Tokenizer loaded", "hub", 300), small_steps.tokenizer),
        Step(Checkpoint("model", "Model on its device", "model", 900), training_steps.model),
        Step(Checkpoint("lora", "LoRA ready", "lora", 120), training_steps.lora),
        Step(
            Checkpoint("gradient_checkpointing", "Gradient checkpointing set", "model", 60),
            training_steps.gradient_checkpointing,
        ),
        Step(Checkpoint("data", "Data ready", "data", 300), data_steps.data),
        Step(Checkpoint("trainer", "Trainer ready", "trainer", 180), training_steps.trainer),
        Step(
            Checkpoint("training", "Training finished", "fit", 600, phases=_PHASES),
            training_steps.training,
        ),
        Step(
            Checkpoint("checkpoint", "Checkpoint written", "checkpoint", 300),
            training_steps.checkpoint,
        ),
    ),
    add_arguments=add_arguments,
    shows_itself="first_step",
    aliases=(("peft", "lora"),),
)
