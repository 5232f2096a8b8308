"""Tells which shards of a checkpoint are read, while transformers loads it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .loading_plan import checkpoint_of
from .shards import Checkpoint, Progress

if TYPE_CHECKING:
    from ...rank.context import Context
    from .loading_plan import Plan

_REST = "it places the weights and looks up the generation config"
_LINE_EVERY = 1.0  # seconds between two lines; the last one always comes


@contextlib.contextmanager
def telling_shards(context: Context, planned: Plan, transformers: Any) -> Iterator[None]:
    """Tell which shards are read while from_pretrained runs: its progress bar is made by us."""
    hook = getattr(transformers.utils.logging, "set_tqdm_hook", None)
    if hook is None:  # transformers before 5: its bar tells it
        yield
        return

    def bar(factory: Any, args: tuple[Any, ...], words: dict[str, Any]) -> Any:
        if args and str(words.get("desc", "")).startswith("Loading"):
            return _Bar(
                args[0], context, planned.checkpoint or checkpoint_of(planned.name, context)
            )
        return factory(*args, **words)

    before = hook(bar)
    try:
        yield
    finally:
        hook(before)


class _Bar:
    """What transformers iterates over as it loads, in the place of its own progress bar."""

    def __init__(
        self, items: Iterable[Any], context: Context, checkpoint: Checkpoint | None
    ) -> None:
        self._items = list(items)
        self._context = context
        self._progress = Progress(checkpoint or Checkpoint({"": 0}, {}), len(self._items))

    def __iter__(self) -> Iterator[Any]:
        context, progress = self._context, self._progress
        context.phase("shards")
        began = said = time.monotonic()
        for item in self._items:
            yield item  # when the next one is wanted, this one has been read
            complete = progress.read(item[0] if isinstance(item, tuple) else None)
            context.pulse(progress.done)
            now = time.monotonic()
            if complete and now - said > _LINE_EVERY and progress.done < progress.total:
                said = now
                context.say(progress.in_words(now - began))
        context.say(progress.in_words(time.monotonic() - began))
        context.phase("after_shards")
        context.say(f"All shards are read, and from_pretrained has not returned: {_REST}")
