"""A Trainer that announces its phases at the moment each begins, and times its steps.

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import transformers

from .shared_steps import PhasesInOrder

if TYPE_CHECKING:
    from ..rank.walk import Context


class PhaseCallback(transformers.TrainerCallback):
    """Says which phase begins, and times the steps."""

    def __init__(self, context: Context) -> None:
        """Speak through `context`."""
        self._context = context
        self.begin = PhasesInOrder(context).begin
        self._began = 0.0
        self.seconds: list[float] = []  # of each step of the optimizer, with its batches

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Model and optimizer are prepared: DDP's group has met."""
        self.begin("first_batch")

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The batch is there."""
        self._began = time.monotonic()
        self.begin("first_forward")

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Gradients are summed."""
        self.begin("first_step")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step of the optimizer is done."""
        self.seconds.append(time.monotonic() - self._began)
        self.begin("steady")
        self._context.pulse(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The last step is done."""
        self.begin("teardown")


class FollowedTrainer(transformers.Trainer):
    """A Trainer that says when forward is done."""

    def __init__(self, context: Context, **options: Any) -> None:
        """Make it with the options of a Trainer."""
        super().__init__(**options)
        self.followed = PhaseCallback(context)
        self.add_callback(self.followed)

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        """Return the loss; backward comes next."""
        loss = super().compute_loss(*args, **kwargs)
        self.followed.begin("first_backward")
        return loss
