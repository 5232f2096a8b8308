"""Steps 10 to 12 of `startup`: the callback that logs memory; the Trainer, a prime suspect, with
devices and nodes from the launcher; and fit, phase by phase.

Trainer(devices="auto") on a CPU under torchrun would quietly train on one process without any
process group, so nothing is left to be guessed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..base.launcher_env import INTERACTIVE
from . import wandb_start
from .shared_steps import logs_path

if TYPE_CHECKING:
    from ..rank.walk import Context


def memory_callback(context: Context) -> Any:
    """Return a MemoryLoggingCallback that prints this rank's lines, None with --callbacks none."""
    if context.args.callbacks == "none":
        context.not_exercised.append("callbacks (--callbacks none)")
        context.say("No callbacks")
        return None
    context.imports("psutil")
    context.imports("pytorch_lightning")
    from .lightning_modules import MemoryLoggingCallback  # its own imports are done by now

    context.about_to("MemoryLoggingCallback")
    callback = MemoryLoggingCallback(context.say)
    context.say(callback.in_words("now"))
    return callback


# Below the ports that the kernel gives away (ip_local_port_range), the same on all ranks of a job.
_FIRST_PORT, _PORTS = 20000, 12000


def trainer(context: Context) -> Any:
    """Return the Trainer; it makes the process group only in fit."""
    pl = context.imports("pytorch_lightning")
    _say_environment("before the Trainer", context)
    args = context.args
    devices, nodes = count_devices_and_nodes(context)
    _introduce_launcher(context, nodes)
    strategy = _strategy(context)
    context.say(f"Prime suspect: the Trainer, {devices} devices on each of {nodes} nodes")
    context.about_to("pytorch_lightning.Trainer", f" with strategy={args.strategy}")
    made = pl.Trainer(
        accelerator=context.products["accelerator"],
        devices=devices,
        num_nodes=nodes,
        strategy=strategy,
        logger=context.products.get("wandb_logger") or False,
        callbacks=_callbacks(context),
        default_root_dir=context.products.get("logs_directory") or logs_path(context),
        max_epochs=-1,
        # Not Lightning's fast_dev_run: it replaces every logger by a dummy, and so hides W&B.
        max_steps=args.fast_dev_run or args.max_steps,
        limit_train_batches=args.fast_dev_run or None,
        log_every_n_steps=1 if args.fast_dev_run else None,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    context.say(
        f"Trainer made: strategy {type(made.strategy).__name__}, "
        f"accelerator {type(made.accelerator).__name__}"
    )
    _say_environment("after the Trainer", context)
    return made


def count_devices_and_nodes(context: Context) -> tuple[int, int]:
    """Return devices on each node, and nodes; their product is the job's number of ranks."""
    place = context.place
    if place.launcher is None:
        return context.args.devices or 1, 1
    return place.local_world_size, max(1, place.world_size // place.local_world_size)


def _introduce_launcher(context: Context, nodes: int) -> None:
    """Tell Lightning of a launcher that it does not know, or it would start the ranks once more.

    It knows LOCAL_RANK (torchrun, DeepSpeed), and Slurm but for salloc's; Open MPI only with mpi4py
    (lightning_fabric 2.6, plugins/environments).
    """
    place = context.place
    slurm = "SLURM_NTASKS" in os.environ
    slurm = slurm and os.environ.get("SLURM_JOB_NAME") not in INTERACTIVE
    if place.launcher is None or "LOCAL_RANK" in os.environ or slurm:
        return
    if nodes > 1 and not (place.master and "MASTER_PORT" in os.environ):
        raise RuntimeError(
            f"{place.launcher} started {nodes} nodes, and MASTER_ADDR or MASTER_PORT is not set: "
            "the ranks cannot find each other"
        )
    told = {
        "RANK": place.rank,
        "LOCAL_RANK": place.local_rank,
        "WORLD_SIZE": place.world_size,
        "NODE_RANK": place.node if nodes > 1 else 0,
        "MASTER_ADDR": (place.master if nodes > 1 else None) or "127.0.0.1",
        "MASTER_PORT": _FIRST_PORT + int(place.job, 16) % _PORTS,
    }
    for name, value in told.items():
        os.environ.setdefault(name, str(value))
    context.say(f"Told Lightning of {place.launcher}: LOCAL_RANK, MASTER_PORT and others set")


def _strategy(context: Context) -> Any:
    """Return the strategy's name, or a strategy object where --backend wants its say."""
    args = context.args
    if args.backend == "auto":
        return args.strategy
    registry = context.imports("pytorch_lightning.strategies").StrategyRegistry
    entry = registry["ddp" if args.strategy == "auto" else args.strategy.lower()]
    context.say(f"Process group backend: {args.backend}")
    return entry["strategy"](**entry["init_params"], process_group_backend=args.backend)


def _callbacks(context: Context) -> list[Any]:
    """Return the callbacks: of --use callbacks, one or several."""
    product = context.products.get("memory_callback")
    if product is None:
        return []
    return list(product) if isinstance(product, (list, tuple)) else [product]


def _say_environment(moment: str, context: Context) -> None:
    from ..base.environment import lines

    for line in lines(moment):
        context.say(line)


def training(context: Context) -> None:
    """Train, announcing each phase as it begins, and finish W&B."""
    trainer = context.products["trainer"]
    from . import fit_phases  # its own imports are done by now

    devices, nodes = count_devices_and_nodes(context)
    fit_phases.announce_phases(trainer, context, world_size=devices * nodes)
    context.phase("launch")
    context.about_to("pytorch_lightning.Trainer.fit")
    trainer.fit(context.products["lightning_module"], context.products["data_module"])
    context.phase("teardown")
    context.say(f"Trained {trainer.global_step} steps")
    wandb_start.finish_wandb(context)
