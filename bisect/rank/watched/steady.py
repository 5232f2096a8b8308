"""Training steps, counted by the optimizers themselves: after a few of them the start is over."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from .table import FIRST_STEP

if TYPE_CHECKING:
    from .rank_side import RankSide

STEADY = 5  # training steps of one optimizer, after which a script has started


class Steady:
    """Tells the first step, the pulse of those that follow, and when there were enough."""

    def __init__(self, side: RankSide, limit: int) -> None:
        """It is over after `limit` steps of one optimizer."""
        self._side = side
        self._limit = limit
        self._counts: dict[int, int] = {}  # by the optimizer's id
        self._handles: list[Any] = []
        self._first: Any = None

    def listen(self, module: Any) -> None:
        """Hear of every step of every optimizer (torch.optim's own hooks)."""

        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            with contextlib.suppress(Exception):
                self._before()

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            with contextlib.suppress(Exception):
                self._after(optimizer)

        with contextlib.suppress(Exception):
            for hook in (before, after):
                hook._torchdynamo_disable = True  # type: ignore[attr-defined]  # as torch.compiler
            self._handles.append(module.register_optimizer_step_pre_hook(before))
            self._handles.append(module.register_optimizer_step_post_hook(after))

    def _before(self) -> None:
        if not self._counts and self._first is None:
            self._first = self._side.begin(FIRST_STEP)

    def _after(self, optimizer: Any) -> None:
        if self._first is not None:
            self._first(None)
            self._first = None
        count = self._counts[id(optimizer)] = self._counts.get(id(optimizer), 0) + 1
        if self._side.voice is not None and self._side.steps is not None:
            self._side.voice.pulse(count)
            if count == self._limit:
                self._side.over()
        if self._side.is_over:
            self.stop()

    def stop(self) -> None:
        """Hear of no more steps."""
        while self._handles:
            self._handles.pop().remove()
