"""The arguments of the pipeline `finetuning`; its toggles are in the table of toggles."""

from __future__ import annotations

import argparse

from ..generating.arguments_step import add_max_memory
from .argument_types import memory_size, names
from .trainer_steps import OPTIMIZERS

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
    from ...bisection.toggles import toggles_of
    from ...rank.argument_types import choice, count
    from ...rank.toggle_argument import add_toggles

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
        type=names,
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
