"""Tracebacks as they would be without us."""

from __future__ import annotations


def without_our_frame(error: BaseException) -> None:
    """Take the frame of the function that calls this out of the traceback of the error that it has
    caught. Raised again (by a mere `raise`, which adds no frame), it looks as without our frame.
    """
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next
