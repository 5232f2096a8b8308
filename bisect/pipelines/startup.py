"""The main pipeline: everything that happens until a language model trains, step by step. Its table
is base/checkpoints.py. Here are its last steps, the prime suspects: W&B really started, in one of
the ways that jobs start it, the callback that logs memory, the Trainer, and fit, phase by phase.

WandbLogger does nothing until its `experiment` is read, and that is a dummy on every rank but 0; so
"W&B on every rank" is wandb.init on each, as many scripts have it.

Trainer(devices="auto") on a CPU under torchrun would quietly train on one process without any
process group, so the Trainer gets devices and nodes from the launcher.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..base.checkpoints import STARTUP
from ..base.launcher_env import INTERACTIVE
from ..base.pipeline import Step
from . import model_steps, shared_steps
from .shared_steps import logs_path, make_pipeline

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
    variables = {
        "RANK": place.rank,
        "LOCAL_RANK": place.local_rank,
        "WORLD_SIZE": place.world_size,
        "NODE_RANK": place.node if nodes > 1 else 0,
        "MASTER_ADDR": (place.master if nodes > 1 else None) or "127.0.0.1",
        "MASTER_PORT": _FIRST_PORT + int(place.job, 16) % _PORTS,
    }
    for name, value in variables.items():
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
    finish_wandb(context)


PROJECT = "hangbisect"
_OFFLINE_MODES = ("offline", "dryrun")


def wandb_logger(context: Context) -> Any:
    """Start W&B as --wandb says; return the Trainer's logger, False for none on this rank."""
    how = context.args.wandb
    context.say(f"Prime suspect: W&B, --wandb {how}")
    if how == "off" or (how in ("rank0", "offline") and context.place.rank != 0):
        if how == "off":
            context.not_exercised.append("W&B (--wandb off)")
        context.say("No W&B on this rank: logger=False")
        return False
    wandb = context.imports("wandb")
    offline = _offline_because(wandb, context)
    if offline:
        context.not_exercised.append(f"W&B online ({offline})")
        context.say(f"W&B runs offline: {offline}")
    logger = _start(wandb, how, bool(offline), context)
    run = wandb.run
    context.say(f"W&B ready: {'run ' + run.id if run else 'no run in this process (a dummy)'}")
    return logger


def _start(wandb: Any, how: str, offline: bool, context: Context) -> Any:
    loggers = context.imports("pytorch_lightning.loggers")
    folder = context.products.get("logs_directory") or logs_path(context)
    if how == "every-rank":
        context.about_to("wandb.init", " on every rank")
        run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            dir=folder,
            group=os.environ.get("WANDB_RUN_GROUP") or os.environ.get("TORCHELASTIC_RUN_ID"),
            name=f"rank-{context.place.rank}",
            mode="offline" if offline else None,
        )
        context.about_to("WandbLogger", " with that run")
        return loggers.WandbLogger(experiment=run)
    context.about_to("WandbLogger", f" constructor with save_dir={folder}")
    # `offline` alone sets WANDB_MODE, which W&B has read by now (has_account); `mode` is told it.
    mode = {"mode": "offline"} if offline else {}
    logger = loggers.WandbLogger(
        project=os.environ.get("WANDB_PROJECT", PROJECT), save_dir=folder, offline=offline, **mode
    )
    # On rank 0 this is where wandb.init is called, and wandb-core started.
    context.about_to("WandbLogger.experiment")
    _ = logger.experiment
    return logger


def _offline_because(wandb: Any, context: Context) -> str:
    """Return why W&B has to run offline, "" if it runs online."""
    if context.args.wandb == "offline":
        return "--wandb offline"
    mode = os.environ.get("WANDB_MODE", "")
    if mode == "disabled":
        context.not_exercised.append("W&B (WANDB_MODE=disabled)")
        return ""
    if mode in _OFFLINE_MODES:
        return f"WANDB_MODE={mode}"
    return "" if has_account(wandb) else "no account"


def has_account(wandb: Any) -> bool:
    """Return whether W&B finds credentials: in the environment, in its settings, in netrc.

    Asks as wandb.init does (wandb 0.31, wandb_login), but prompts nobody, prints nothing, starts
    no wandb-core, and does not go to the network.
    """
    try:
        from wandb.sdk import wandb_setup
        from wandb.sdk.lib import wbauth

        settings = wandb_setup.singleton().settings
        found = wbauth.authenticate_session(
            host=settings.base_url, source=PROJECT, prompt=False, update_session=False
        )
    except (ImportError, AttributeError, TypeError):  # another wandb than the tested ones
        return bool(os.environ.get("WANDB_API_KEY"))
    except wandb.Error:  # a key that cannot be one: let wandb.init say so
        return True
    return found is not None


def finish_wandb(context: Context) -> None:
    """Finish the run of this process, if W&B was started in it, by whomever."""
    import sys

    wandb = sys.modules.get("wandb")
    run = getattr(wandb, "run", None)
    if run is not None:
        context.about_to("wandb.finish")
        run.finish()
        context.say("W&B finished")


# What is done before each checkpoint is a function of its name.
_RUNS = (
    *(shared_steps.arguments, shared_steps.logs_directory, model_steps.tokenizer),
    *(model_steps.model, model_steps.lightning_module, model_steps.data_module),
    *(model_steps.accelerator, wandb_logger, memory_callback, trainer, training),
)
_SKIPPABLE = ("logs_directory", "wandb_logger", "memory_callback")
_GIVEN_UP = {"memory_callback": ("callbacks", "none")}


def _add_startup_arguments(group: argparse._ActionsContainer) -> None:
    from ..base.argument_types import count

    for flag, least, default, help in (
        ("--batch-size", 1, 32, "examples a batch, on each rank"),
        ("--max-steps", 1, 10000, "training steps"),
        ("--fast-dev-run", 0, 0, "train on this many batches only; 0: off"),
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


def _make_steps() -> Iterator[Step]:
    """Yield the steps behind `script`, which all pipelines have."""
    runs = {run.__name__: run for run in _RUNS}
    for one in STARTUP[2:]:
        name = one.name
        yield Step(one, runs[name], name in _SKIPPABLE, _GIVEN_UP.get(name))


PIPELINE = make_pipeline(
    "startup",
    _make_steps(),
    _add_startup_arguments,
    shows_itself="first_step",
    aliases=(("callbacks", "memory_callback"), ("logger", "wandb_logger")),
)
