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
    """Return the same without where, and without notes that were added to it.

    `traceback` would read the sources of all errors before it, and list what the object of an
    AttributeError has: it is the job's, and its disk may not answer. To import that after an
    interruption has Python end without SIGINT, as well (an eval() with a text forgets it).
    """
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    try:
        words = str((error.msg or "") if isinstance(error, SyntaxError) else error)
    except Exception:
        words = "<exception str() failed>"  # as Python prints it
    return f"{name}: {words}".splitlines()[0].strip() if words else name


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
