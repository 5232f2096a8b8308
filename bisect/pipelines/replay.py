"""The pipeline of one module alone, called again with the inputs of a real job.

This file is the table. Each step is a function in one of the modules of replaying/.
"""

from __future__ import annotations

from ..checkpoints import Checkpoint, Phase
from . import script_steps
from .pipeline import Pipeline, Step
from .replaying import (
    arguments_step,
    distributed_step,
    inputs_step,
    memory_step,
    module_step,
    preflight,
    ready_step,
    replay_step,
    weights_step,
)
from .replaying.command_line import add_arguments

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
    launcher=Checkpoint(0, "launcher", "Ranks started", "launcher", 120),
    steps=(
        Step(Checkpoint(1, "script", "Script started", "interpreter", 30), script_steps.script),
        Step(Checkpoint(2, "arguments", "Args parsed", "arguments", 30), arguments_step.arguments),
        Step(
            Checkpoint(3, "inputs", "Captured inputs listed", "capture", 120),
            inputs_step.captured_inputs,
        ),
        Step(
            Checkpoint(4, "preflight", "Preflight passed", "module", 120),
            preflight.preflight,
            skippable=True,
        ),
        Step(
            Checkpoint(5, "memory_budget", "Memory budget made", "memory", 300),
            memory_step.memory_budget,
            skippable=True,
        ),
        Step(Checkpoint(6, "module", "Module built", "module", 900), module_step.module),
        Step(
            Checkpoint(7, "distributed", "Process group ready", "strategy", 300),
            distributed_step.distributed,
        ),
        Step(Checkpoint(8, "weights", "Weights loaded", "module", 900), weights_step.weights),
        Step(Checkpoint(9, "ready", "Module ready", "module", 600), ready_step.ready),
        Step(
            Checkpoint(10, "replay", "Inputs replayed", "module", 900, phases=_PHASES),
            replay_step.replay,
        ),
    ),
    add_arguments=add_arguments,
    shows_itself="replay",
    aliases=(("model", "module"),),
)
