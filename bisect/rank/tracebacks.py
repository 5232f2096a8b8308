"""Tracebacks as they would be without us."""

from __future__ import annotations


def without_our_frame(error: BaseException) -> None:
    """Take the frame of whoever calls this out of the traceback of what it has caught: raised again
    (by a mere `raise`, which adds no frame), it looks as if nobody had been in between.
    """
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next
