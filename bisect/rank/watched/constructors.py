"""A constructor is over when that of the object's own class is: it often loads its model after
`super().__init__()`, and the call that we know is only the latter.

Nothing of a user's class is replaced: Lightning reads arguments out of the frames of constructors,
and classes are pickled by value. What hears the end is held by the constructor's frame alone, and
so dies with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

End = Callable[[BaseException | None], None]
_SOME = Exception()  # in the place of an error that is gone
_NAMES = ("__init__", "__post_init__")  # the latter is called by the former, of dataclasses


def until_constructed(end: End, new: Any, frame: FrameType | None) -> End:
    """Return what is to be called when the constructor that we know is over, `frame` having called
    it: `end`, which is put off to the end of the whole constructor of `new` where that is longer.
    """
    whole = outermost(new, frame)
    if whole is None or not at_end_of(whole, lambda returned: end(None if returned else _SOME)):
        return end
    return lambda error: None if error is None else end(error)


def outermost(new: Any, frame: FrameType | None) -> FrameType | None:
    """Return the frame of the constructor of `new`'s own class, of which `frame` is a part: the
    frame that called the constructor that we know. None where that one is the object's own.
    """
    codes, found = set(_codes(type(new))), None
    while frame is not None and frame.f_code in codes:
        found, frame = frame, frame.f_back
    return found


def _codes(cls: type) -> Iterator[CodeType]:
    for one in cls.__mro__:
        for name in _NAMES:
            code = getattr(vars(one).get(name), "__code__", None)
            if code is not None:
                yield code


def at_end_of(frame: FrameType, call: Callable[[bool], None]) -> bool:
    """Call call(returned) once `frame` is over: True if it has returned, False if it raised (that
    is heard when its traceback is gone). Return False where a debugger holds the frame.
    """
    if sys.gettrace() is not None or frame.f_trace is not None:
        return False
    frame.f_trace = _End(call, frame.f_back)
    return True


class _End:
    """Lies where a frame holds the function that traces it: nobody calls it without a tracer."""

    __slots__ = ("_call", "_caller")

    def __init__(self, call: Callable[[bool], None], caller: FrameType | None) -> None:
        self._call = call
        self._caller = _place(caller)

    def __call__(self, frame: FrameType, event: str, argument: object) -> _End:
        return self  # a tracer has come after us, and asks for the next line's function

    def __del__(self) -> None:
        # Where a constructor returns its caller stands where it called; after an error elsewhere,
        # or nobody is there any more.
        self._call(_place(sys._getframe().f_back) == self._caller)


def _place(frame: FrameType | None) -> tuple[CodeType, int] | None:
    return None if frame is None else (frame.f_code, frame.f_lasti)
