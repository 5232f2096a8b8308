"""Steps 1 to 3: the script itself, its arguments, its logs directory."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from ..bisection.toggles import TOGGLES
from ..errors import UsageError

if TYPE_CHECKING:
    from ..rank.context import Context

# What pytorch-lightning 2.6 registers (StrategyRegistry.available_strategies()). Any other name is
# looked up in the registry itself, which costs an import.
_DDP = ("ddp", "ddp_spawn", "ddp_fork", "ddp_notebook")
_UNUSED = ("find_unused_parameters_false", "find_unused_parameters_true")
_STAGES = ("_1", "_1_offload", "_2", "_2_offload", "_3", "_3_offload", "_3_offload_nvme")
KNOWN_STRATEGIES = frozenset(
    [
        *("auto", "fsdp", "fsdp_cpu_offload", "deepspeed", "single_xla", "xla", "xla_debug"),
        *_DDP,
        *(f"{name}_{unused}" for name in _DDP for unused in _UNUSED),
        *(f"deepspeed_stage{stage}" for stage in _STAGES),
    ]
)


# Toggles whose flag sets a variable; of others the step reads the flag.
_SET_BY_FLAG = ("hub", "tokenizers_parallelism")


def script(context: Context) -> None:
    """Set what --env and the toggles want set before anything is imported; show what is set."""
    from ..rank.environment import lines

    os.environ.update(wanted_environment(context.args))
    for line in lines("at the start"):
        context.say(line)


def wanted_environment(args: argparse.Namespace) -> dict[str, str]:
    """Return the variables that the arguments ask for; --env has the last word."""
    wanted = {
        variable: setting
        for entry in TOGGLES
        if entry.name in _SET_BY_FLAG
        for value, variable, setting in entry.environment
        if getattr(args, entry.dest, None) == value
    }
    return {**wanted, **args.env}


def arguments(context: Context) -> argparse.Namespace:
    """Check what only the libraries or the job's place can tell; return the arguments."""
    args = context.args
    if args.strategy not in KNOWN_STRATEGIES:
        _check_strategy(args.strategy, context)
    world = context.place.world_size
    if args.devices not in (None, world) and context.place.launcher:
        raise UsageError(
            f"--devices cannot be {args.devices}: {context.place.launcher} started {world} ranks",
            "Leave --devices out under a launcher, or start the job without one.",
        )
    if args.data:
        context.about_to("os.path.exists", f" for {args.data}")
    if args.data and not os.path.exists(args.data):
        raise UsageError(f"--data names {args.data!r}, and there is no such file")
    context.say("Arguments: " + in_words(args))
    return args


def in_words(args: argparse.Namespace) -> str:
    """Return what was asked for, and all defaults, on one line; --env with its secrets masked."""
    from ..rank.masking import mask, mask_text

    shown = {**vars(args), "env": {name: mask(name, value) for name, value in args.env.items()}}
    words = [f"{k}={v}" for k, v in sorted(shown.items()) if v not in (None, [], {}, False)]
    return mask_text(" ".join(words))


def _check_strategy(name: str, context: Context) -> None:
    from ..rank.argument_types import wrong

    context.imports("torch")
    registry = context.imports("pytorch_lightning.strategies").StrategyRegistry
    registered = {"auto", *registry.available_strategies()}
    if name.lower() not in registered:
        raise wrong("--strategy", name, sorted(registered))


def logs_path(context: Context) -> str:
    """Return where the job's own logs go, whether it exists or not."""
    return os.path.abspath(context.args.logs_path or os.path.join(context.run_dir, "logs"))


def logs_directory(context: Context) -> str:
    """Make the logs directory, on every rank or on rank 0 alone, and return it."""
    path = logs_path(context)
    if context.args.make_logs_dir == "rank0":
        with context.rank0_only("logs directory") as mine:
            if mine:
                _make(path, context)
    else:
        _make(path, context)
    return path


def _make(path: str, context: Context) -> None:
    context.about_to("os.makedirs", f" with {path}")
    os.makedirs(path, exist_ok=True)
