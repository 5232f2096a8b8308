"""The pipeline of one module alone, called again with the inputs of a real job.

This file is the table. Each step is a function in one of the modules of replaying/.
"""

from __future__ import annotations

import argparse

from ..base.checkpoints import Checkpoint, Phase
from ..base.pipeline import Pipeline, Step
from . import shared_steps
from .replaying import inputs_step, module_steps, preflight, replay_step

_TEXTS = (
    ("--captures", "DIR", "the captured inputs (captures, or what HANGBISECT_CAPTURE_DIR says)"),
    ("--captured", "NAME", "of several modules whose inputs are there: the one of this name"),
    ("--model", "NAME_OR_PATH", "without --use module=...: AutoModelForCausalLM (a small one)"),
    (
        "--weights",
        "PATH",
        "into the module: a file of safetensors or of torch.save's, or a folder with a model",
    ),
    ("--save-module", "DIR", "write the module's weights there, for --weights of a later run"),
    ("--save-outputs", "DIR", "keep what each input gives, as captures keep it"),
    (
        "--outputs",
        "DIR",
        "what is compared with: outputs of an earlier --save-outputs (those captured)",
    ),
)
_SWITCHES = (
    ("--backward", "do a backward pass too: from the loss, or the sum of what is returned"),
    ("--keep-going", "after an input that fails go on with the next (one rank alone)"),
    ("--quiet", "no lines for each input: the table alone"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this pipeline, and the toggles that its steps read."""
    from ..base.argument_types import count, not_negative
    from ..toggles.table import add_toggles, toggles_of

    group = parser.add_argument_group("the pipeline")
    add = group.add_argument
    for flag, metavar, help in _TEXTS:
        add(flag, metavar=metavar, help=help)
    add(
        "--input-file",
        metavar="FILE",
        action="append",
        default=[],
        help="this capture alone; repeatable",
    )
    add("--rank", metavar="N", type=count("--rank"), help="inputs of this rank alone, on each rank")
    add("--max-inputs", metavar="N", type=count("--max-inputs", 1),
        help="of each rank the first N (all)")  # fmt: skip
    add("--batch-size", metavar="N", type=count("--batch-size", 1), default=2,
        help="rows of the input that is made where none was captured (2)")  # fmt: skip
    add("--length", metavar="N", type=count("--length", 1), default=64,
        help="and how long each is (64)")  # fmt: skip
    add(
        "--tolerance",
        metavar="X",
        type=not_negative("--tolerance"),
        help="fail where an output differs by more than X; 0: by anything",
    )
    for flag, help in _SWITCHES:
        add(flag, action="store_true", help=help)
    add_toggles(group, toggles_of("replay"))


# Deadlines in seconds: half a minute for what is local, minutes for what reads gigabytes; a quarter
# of an hour for the first forward, which compiles, and for the first backward.
_PHASES = (
    Phase("first_input", "capture", 120),
    Phase("first_forward", "module", 900),
    Phase("first_backward", "module", 900),
    Phase("steady", "module", None),
    Phase("teardown", "strategy", 120),
)


PIPELINE = Pipeline(
    name="replay",
    steps=(
        Step(Checkpoint("script", "Script started", "interpreter", 30), shared_steps.script),
        Step(Checkpoint("arguments", "Args parsed", "arguments", 30), preflight.arguments),
        Step(
            Checkpoint("inputs", "Captured inputs listed", "capture", 120),
            inputs_step.captured_inputs,
        ),
        Step(
            Checkpoint("preflight", "Preflight passed", "module", 120),
            preflight.preflight,
            skippable=True,
        ),
        Step(
            Checkpoint("memory_budget", "Memory budget made", "memory", 300),
            preflight.memory_budget,
            skippable=True,
        ),
        Step(Checkpoint("module", "Module built", "module", 900), module_steps.module),
        Step(
            Checkpoint("distributed", "Process group ready", "strategy", 300),
            module_steps.distributed,
        ),
        Step(Checkpoint("weights", "Weights loaded", "module", 900), module_steps.weights),
        Step(Checkpoint("ready", "Module ready", "module", 600), module_steps.ready),
        Step(
            Checkpoint("replay", "Inputs replayed", "module", 900, phases=_PHASES),
            replay_step.replay,
        ),
    ),
    add_arguments=add_arguments,
    shows_itself="replay",
    aliases=(("model", "module"),),
)
