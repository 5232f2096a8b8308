"""Our own errors, told from exceptions of the job's that arrive while our code runs.

What fails of ours is left out, and the job goes on. But a handler of the job's (a time limit by
SIGALRM) raises wherever the main thread is, which may be in our code: in a message, in a line that
waits for room in a pipe. Swallowed there, it would never come again. Neither would an exception
that another thread puts into this one (PyThreadState_SetAsyncExc).
"""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType, TracebackType
from typing import Any

from .variables import PACKAGES

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/"
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + "/"
_INSTALLED = ("/site-packages/", "/dist-packages/")


class ignore_our_errors:
    """Leave out what fails of ours inside, of `kinds`; what is the job's passes."""

    def __init__(self, *kinds: type[Exception]) -> None:
        """Without `kinds` it is every Exception."""
        self._kinds = kinds or (Exception,)

    def __enter__(self) -> None:
        """Nothing has failed yet."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        """Return whether the error is left out."""
        return isinstance(error, self._kinds) and not is_of_the_job(error)


def raise_if_of_the_job(error: BaseException) -> None:
    """Raise `error` again, which we have just caught, if it is the job's."""
    if is_of_the_job(error):
        raise error


def is_of_the_job(error: BaseException) -> bool:
    """Return whether the job raised an exception that was caught in our code: in a handler of a
    signal, or from another thread.
    """
    traceback = error.__traceback__
    frame: FrameType | None = None
    handlers: set[CodeType] = set()
    while traceback is not None:
        frame, traceback = traceback.tb_frame, traceback.tb_next
        if _is_jobs(frame.f_code.co_filename):
            handlers = handlers or _handlers()
            if frame.f_code in handlers or _was_given_what_it_interrupts(frame):
                return True
    # Nobody's code raised it, and none of ours knows such a class.
    inside = frame is not None and not _is_jobs(frame.f_code.co_filename)
    return inside and _is_jobs_class(type(error))


def _handlers() -> set[CodeType]:
    """Return the code of the handlers that are set."""
    import signal  # it takes its time, and most processes never need it here

    found = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        for one in (handler, getattr(handler, "__func__", None), getattr(handler, "func", None)):
            if isinstance(code := getattr(one, "__code__", None), CodeType):
                found.add(code)
    return found


def _was_given_what_it_interrupts(frame: FrameType) -> bool:
    """Return whether a function got the frame that called it as an argument: handlers of signals
    do (`handler(number, frame)`), and who is called as usual does not.
    """
    code, values = frame.f_code, frame.f_locals
    for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + 2]:
        value = values.get(name)
        for one in value if isinstance(value, tuple) else (value,):
            if one is frame.f_back and one is not None:
                return True
    return False


def _is_jobs(file: str) -> bool:
    """Return whether code of that file is neither ours nor the standard library's."""
    if file.startswith((_OURS, "<frozen ")):
        return False
    return not file.startswith(_STANDARD) or any(part in file for part in _INSTALLED)


def _is_jobs_class(kind: type) -> bool:
    name = kind.__module__
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None) or ""
    is_known = not file or name.partition(".")[0] in PACKAGES
    return name == "__main__" or (not is_known and _is_jobs(os.path.abspath(file)))
