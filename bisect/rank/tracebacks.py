"""Errors of the job: in a line, with their tracebacks, and as they would be without us."""

from __future__ import annotations

import os
from types import TracebackType


def without_our_frame(error: BaseException) -> None:
    """Take the frame of the function that calls this out of the traceback of the error that it has
    caught. Raised again (by a mere `raise`, which adds no frame), it looks as without our frame.
    """
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next


def summarize_error(error: BaseException) -> str:
    """Return an error in a line: its kind, its words, and where it was raised."""
    place = _find_raise(error.__traceback__)
    where = f" ({os.path.basename(place[0])}:{place[1]})" if place else ""
    return format_error(error) + where


def format_error(error: BaseException) -> str:
    """Return the same without where, and without notes that were added to it."""
    # Python ends itself by SIGINT after an interruption that nobody caught, unless anything calls
    # eval() with a text meanwhile: that forgets it. To import `traceback` is to do so.
    if isinstance(error, KeyboardInterrupt):
        return type(error).__name__
    import traceback

    summary = traceback.TracebackException(type(error), error, None)
    summary.__notes__ = None  # they come last
    return list(summary.format_exception_only())[-1].strip().splitlines()[0]


def format_traceback(error: BaseException) -> str:
    """Return an error with its traceback."""
    import traceback

    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def _find_raise(traceback: TracebackType | None) -> tuple[str, int] | None:
    """Return the file and line of the innermost frame."""
    if traceback is None:
        return None
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
