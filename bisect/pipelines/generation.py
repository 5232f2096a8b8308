"""The pipeline of a model that generates text: everything from its weights to the last of N steps.

This file is the table. Each step is a function in one of the modules of generating/.
"""

from __future__ import annotations

import argparse

from ..base.checkpoints import Checkpoint, Phase
from ..base.pipeline import Pipeline, Step
from ..toggles.table import toggles_of
from . import shared_steps
from .generating import forecast, generation_steps, loading_plan, loading_steps, settings_steps
from .generating.settings_steps import DTYPES, add_max_memory

# Deadlines in seconds: half a minute for what is local, minutes for what downloads or reads
# gigabytes; two minutes for what generates, for no loop of hundreds of steps can wait longer.
_LOADING = (
    Phase("files", "hub", 900),
    Phase("shards", "model", 600),
    Phase("after_shards", "model", 120),
)
_OF_A_STEP = (
    Phase("observation", "loop", 120),
    Phase("prompt", "generation", 60),
    Phase("generate", "generation", 120),
    Phase("decode", "generation", 60),
    Phase("action", "loop", 120),
    Phase("steady", "generation", None),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this pipeline, and the toggles that its steps read."""
    from ..base.argument_types import choice, count, positive
    from ..toggles.table import add_toggles

    group = parser.add_argument_group("the pipeline")
    add = group.add_argument
    add("--model", metavar="NAME_OR_PATH", help="through AutoModelForCausalLM (a small one)")
    add("--tokenizer", metavar="NAME_OR_PATH", help="through AutoTokenizer (the model's)")
    add(
        "--local-files-only",
        action="store_true",
        help="take tokenizer and weights from the hub's cache alone, as from_pretrained does with "
        "local_files_only=True",
    )
    add("--dtype", metavar="|".join(DTYPES), type=choice("--dtype", DTYPES), default="auto",
        help="of the weights; auto: as they are saved (auto)")  # fmt: skip
    add_max_memory(group, "20GB")
    add("--offload-folder", metavar="DIR", help="for what goes to the disk (a temporary one)")
    add("--steps", metavar="N", type=count("--steps", 1), default=2, help="inference steps (2)")
    add("--batch-size", metavar="N", type=count("--batch-size", 1), default=1,
        help="prompts a step, all the same (1)")  # fmt: skip
    add("--prompt-file", metavar="FILE", help="text to go on from (a page that ships)")
    add(
        "--slow-generation",
        metavar="SECONDS",
        type=positive("--slow-generation"),
        default=120.0,
        help="warn of a generation that takes longer while it runs, and once more after 2.5 times "
        "as long (120)",
    )
    add_toggles(group, toggles_of("generation"))


PIPELINE = Pipeline(
    name="generation",
    steps=(
        Step(Checkpoint("script", "Script started", "interpreter", 30), shared_steps.script),
        Step(Checkpoint("arguments", "Args parsed", "arguments", 30), settings_steps.arguments),
        Step(Checkpoint("tokenizer", "Tokenizer loaded", "hub", 300), settings_steps.tokenizer),
        Step(Checkpoint("plan", "Loading planned", "hub", 300), loading_plan.plan),
        Step(Checkpoint("weights", "Weights loaded", "model", 1800, phases=_LOADING),
             loading_steps.weights),
        Step(Checkpoint("placement", "Device map known", "model", 60), loading_steps.placement),
        Step(Checkpoint("cache_cleared", "Cache cleared", "accelerator", 60),
             forecast.clear_caches),
        Step(Checkpoint("generation_config", "Generation config set", "hub", 60),
             settings_steps.generation_config),
        Step(Checkpoint("pad_token", "Pad token set", "generation", 30),
             settings_steps.pad_token),
        Step(Checkpoint("test_input", "Test input made", "generation", 60),
             generation_steps.test_input),
        Step(Checkpoint("first_device", "First parameter's device found", "model", 30),
             generation_steps.first_device),
        Step(Checkpoint("input_moved", "Test input moved", "accelerator", 60),
             generation_steps.input_moved),
        Step(Checkpoint("test_generation", "Test generation done", "generation", 120),
             generation_steps.test_generation),
        Step(Checkpoint("cleared_again", "Cache cleared again", "accelerator", 60),
             forecast.clear_caches),
        Step(Checkpoint("memory", "Memory known", "accelerator", 120), forecast.memory),
        Step(Checkpoint("steps", "Inference steps done", "generation", 600, phases=_OF_A_STEP),
             generation_steps.steps),
    ),
    add_arguments=add_arguments,
    shows_itself="decode",
    aliases=(("model", "weights"),),
    called=("step",),
)  # fmt: skip
