"""Announces the phases of a Trainer's fit, at the moment each begins, and changes nothing of it.

Three of them begin in no callback, so the strategy's own methods are wrapped: the process group is
made in setup_environment, the model is wrapped (DDP, FSDP) in setup, and the first thing that
fit does after prepare_data is the barrier "pre_setup" (pytorch_lightning 2.6, Trainer._run).

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch.distributed
from pytorch_lightning.strategies import ParallelStrategy
from pytorch_lightning.strategies.launchers import _MultiProcessingLauncher

from .shared_steps import PhasesInOrder

if TYPE_CHECKING:
    from ..rank.walk import Context


def announce_phases(trainer: pl.Trainer, context: Context, world_size: int) -> None:
    """Make `trainer` announce its phases; fit will want a process group of `world_size`.

    Processes that Lightning forks or spawns to train in (ddp_spawn, ddp_fork) are no ranks of
    ours and have no voice; their phases are not announced.
    """
    if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
        context.say("Lightning trains in processes of its own: their phases cannot be followed")
        return
    phases = FitPhases(context, world_size)
    # First, so that the hooks of all others fall into the phase that they belong to.
    trainer.callbacks.insert(0, phases)
    strategy: Any = trainer.strategy
    strategy.setup_environment = phases.around_process_group(strategy)
    strategy.barrier = phases.before_barrier(strategy.barrier)
    strategy.setup = phases.before("wrap", strategy.setup, _public_name(strategy, "setup"))


class FitPhases(pl.Callback):
    """Says which phase begins."""

    def __init__(self, context: Context, world_size: int) -> None:
        """Speak through `context`."""
        self._context = context
        self._world_size = world_size
        self.begin = PhasesInOrder(context).begin

    def around_process_group(self, strategy: Any) -> Callable[[], None]:
        """Return setup_environment with a word before it, and a check after it."""
        original = strategy.setup_environment

        @functools.wraps(original)
        def setup_environment() -> None:
            self.begin("process_group")
            if isinstance(strategy, ParallelStrategy):
                self._context.about_to("torch.distributed.init_process_group")
            original()
            self._check_process_group()
            self.begin("prepare_data")

        return setup_environment

    def before_barrier(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the strategy's barrier; its name tells how far fit is."""

        @functools.wraps(original)
        def barrier(name: str | None = None, *args: Any, **kwargs: Any) -> Any:
            if name == "pre_setup":
                self.begin("setup")
            return original(name, *args, **kwargs)

        return barrier

    def before(self, phase: str, original: Callable[..., Any], call: str) -> Callable[..., Any]:
        """Return `original` with a word before it."""

        @functools.wraps(original)
        def announced(*args: Any, **kwargs: Any) -> Any:
            self.begin(phase)
            self._context.about_to(call)
            return original(*args, **kwargs)

        return announced

    def _check_process_group(self) -> None:
        found = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 0
        if self._world_size > 1 and found != self._world_size:
            raise RuntimeError(
                f"the job has {self._world_size} ranks, but the process group that fit made has "
                f"{found or 'none, for there is no group'}"
            )
        if found:
            self._context.say(
                f"Process group ready: {torch.distributed.get_backend()}, {found} ranks"
            )

    # ---- Lightning's hooks, in the order in which fit calls them ---------------------------

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Where a strategy has no barrier named "pre_setup"."""
        self.begin("setup")

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Model and optimizer are in place; the loader is made next."""
        self.begin("first_batch")

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """The batch is there: forward and backward come next."""
        self.begin("first_backward")

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Any
    ) -> None:
        """Gradients are summed."""
        self.begin("first_step")

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """A step is done; from the first on, training goes its way."""
        self.begin("steady")
        self._context.pulse(trainer.global_step)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The last step is done."""
        self.begin("teardown")


def _public_name(strategy: Any, method: str) -> str:
    return f"{type(strategy).__module__.rpartition('.')[0]}.{type(strategy).__name__}.{method}"
