"""The pipeline of a fine-tuning: a memory budget, a model, LoRA, and the first steps of a Trainer.

This file is the table. Each step is a function in one of the modules of tuning/.
"""

from __future__ import annotations

from ..checkpoints import Checkpoint, Phase
from . import model_steps as small_steps
from . import script_steps
from .pipeline import Pipeline, Step
from .tuning import (
    arguments_step,
    budget_step,
    configuration,
    data_step,
    model_steps,
    preflight,
    trainer_steps,
)
from .tuning.command_line import add_arguments

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
    launcher=Checkpoint(0, "launcher", "Ranks started", "launcher", 120),
    steps=(
        Step(Checkpoint(1, "script", "Script started", "interpreter", 30), script_steps.script),
        Step(Checkpoint(2, "arguments", "Args parsed", "arguments", 30), arguments_step.arguments),
        Step(
            Checkpoint(3, "configuration", "Configuration read", "hub", 300),
            configuration.configuration,
        ),
        Step(
            Checkpoint(4, "preflight", "Preflight passed", "model", 120),
            preflight.preflight,
            skippable=True,
        ),
        Step(
            Checkpoint(5, "memory_budget", "Memory budget made", "memory", 600),
            budget_step.memory_budget,
            skippable=True,
        ),
        Step(Checkpoint(6, "tokenizer", "Tokenizer loaded", "hub", 300), small_steps.tokenizer),
        Step(Checkpoint(7, "model", "Model on its device", "model", 900), model_steps.model),
        Step(Checkpoint(8, "lora", "LoRA ready", "lora", 120), model_steps.lora),
        Step(
            Checkpoint(9, "gradient_checkpointing", "Gradient checkpointing set", "model", 60),
            model_steps.gradient_checkpointing,
        ),
        Step(Checkpoint(10, "data", "Data ready", "data", 300), data_step.data),
        Step(Checkpoint(11, "trainer", "Trainer ready", "trainer", 180), trainer_steps.trainer),
        Step(
            Checkpoint(12, "training", "Training finished", "fit", 600, phases=_PHASES),
            trainer_steps.training,
        ),
        Step(
            Checkpoint(13, "checkpoint", "Checkpoint written", "checkpoint", 300),
            trainer_steps.checkpoint,
        ),
    ),
    add_arguments=add_arguments,
    shows_itself="first_step",
    aliases=(("peft", "lora"),),
)
