"""Step 10: the callback that logs memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..rank.context import Context


def memory_callback(context: Context) -> Any:
    """Return a MemoryLoggingCallback that prints this rank's lines, None with --callbacks none."""
    if context.args.callbacks == "none":
        context.not_exercised.append("callbacks (--callbacks none)")
        context.say("No callbacks")
        return None
    context.imports("psutil")
    context.imports("pytorch_lightning")
    from .memory_callback import MemoryLoggingCallback  # its own imports are done by now

    context.about_to("MemoryLoggingCallback")
    callback = MemoryLoggingCallback(context.say)
    context.say(callback.in_words("now"))
    return callback
