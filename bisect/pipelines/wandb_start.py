"""Step 9, a prime suspect: W&B really started, in one of the ways that jobs start it.

WandbLogger does nothing until its `experiment` is read, and that is a dummy on every rank but 0;
so "W&B on every rank" is wandb.init on each, as many scripts have it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .shared_steps import logs_path

if TYPE_CHECKING:
    from ..rank.walk import Context

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
