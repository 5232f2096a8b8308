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
    place = _raised_at(error.__traceback__)
    where = f" ({os.path.basename(place[0])}:{place[1]})" if place else ""
    return words(error) + where


def words(error: BaseException) -> str:
    """Return the same without where, and without notes that were added to it."""
    # Python ends itself by SIGINT after an interruption that nobody caught, unless anything calls
    # eval() with a text meanwhile: that forgets it. To import `traceback` is to do so.
    if isinstance(error, KeyboardInterrupt):
        return type(error).__name__
    import traceback

    told = traceback.TracebackException(type(error), error, None)
    told.__notes__ = None  # they come last
    return list(told.format_exception_only())[-1].strip().splitlines()[0]


def whole(error: BaseException) -> str:
    """Return an error with its traceback."""
    import traceback

    return "".join(traceback.format_exception(error))


def _raised_at(traceback: TracebackType | None) -> tuple[str, int] | None:
    """Return the file and line of the innermost frame."""
    if traceback is None:
        return None
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
