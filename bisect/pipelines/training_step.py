"""Step 12: fit, phase by phase, and what comes after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import wandb_start
from .trainer_step import shape

if TYPE_CHECKING:
    from ..rank.context import Context


def training(context: Context) -> None:
    """Train, announcing each phase as it begins, and finish W&B."""
    trainer = context.products["trainer"]
    from . import fit_phases  # its own imports are done by now

    devices, nodes = shape(context)
    fit_phases.announce(trainer, context, world_size=devices * nodes)
    context.phase("launch")
    context.about_to("pytorch_lightning.Trainer.fit")
    trainer.fit(context.products["lightning_module"], context.products["data_module"])
    context.phase("teardown")
    context.say(f"Trained {trainer.global_step} steps")
    wandb_start.finish(context)
