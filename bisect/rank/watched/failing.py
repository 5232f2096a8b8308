"""What a script raises and does not catch: noted for the goodbye, and printed as ever."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from types import TracebackType

Hear = Callable[[BaseException], None]


def listen(hear: Hear) -> None:
    """Call hear(error) before the hook that is there now prints an error that nobody caught."""
    hook = sys.excepthook

    def heard(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(Exception):
            hear(error)
        hook(kind, error, traceback)

    sys.excepthook = heard


def summary(error: BaseException) -> str:
    """Return an error in a line: its kind, its words, and where it was raised."""
    import traceback

    words = traceback.format_exception_only(error)[-1].strip().splitlines()[0]
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return words
    return f"{words} ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})"


def whole(error: BaseException) -> str:
    """Return an error with its traceback."""
    import traceback

    return "".join(traceback.format_exception(error))
