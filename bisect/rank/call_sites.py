"""Where the job called a function of torch, and by which way it came there, found in a few
microseconds.

A call site is text, a line each:
- the innermost frame of the job's own code ("train.py:88 step"), or of a library, if the job's own
  is further off
- the frames of libraries that lie between it and torch ("ddp.py:308 barrier"), innermost first
- the path of the job's own file
- if the site is a library's: the job's own frame from which it was called
- the frames from which that was called, innermost first, those of the job with their whole path

It is worked out once for each way in; after that only code objects and positions are compared.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from .function_patching import HIDDEN_FILE as WRAPPER

# Frames between torch and the site: a hook of the job lies a few frames off, its call of fit() far.
DEEPEST = 5
FURTHEST = 64  # frames walked, at 0.1 µs each
_MOST_WAYS = 512  # beyond it only the innermost frames tell calls apart
_MOST_SITES = 4096
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|^<frozen ")
_BELOW_LIBRARY = re.compile(r"^.*/(?:site|dist)-packages/")
_STANDARD = os.path.dirname(os.__file__) + "/"
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/"
_STEPS = ("pipelines/", "rank/injections.py")  # of ours these are the job's
_IN_BETWEEN = "pipelines/fit_phases.py"  # it only stands in between, and tells
# Whose code a file is.
JOBS, LIBRARY, HIDDEN = 1, 2, 3


class CallSites:
    """Call sites by number; numbers are given by `number_of(text)`."""

    def __init__(self, number_of: Callable[[str], int]) -> None:
        self._number_of = number_of
        self._known: dict[Any, int] = {}
        # Code is known by its id, which must not be given away again.
        self._kept: list[CodeType] = []
        self._walk = range(FURTHEST)

    def of(self, frame: FrameType | None) -> int:
        """Return the number of the call site that `frame`, the caller of torch, belongs to."""
        key: Any = None
        walked: Any = frame
        try:
            for _ in self._walk:
                key = (key, id(walked.f_code), walked.f_lasti)
                walked = walked.f_back
        except AttributeError:  # there is no further frame
            pass
        found = self._known.get(key)
        return self._new(frame, key) if found is None else found

    def _new(self, frame: FrameType | None, key: Any) -> int:
        """Work a site out; 0 once there are too many."""
        if len(self._known) >= _MOST_SITES:
            return 0
        if len(self._known) == _MOST_WAYS:
            self._walk = range(DEEPEST)
        frames: list[FrameType] = []
        while frame is not None and len(frames) < len(self._walk):
            frames.append(frame)
            frame = frame.f_back
        self._kept += [one.f_code for one in frames]
        self._known[key] = number = self._number_of(_format_site(frames))
        return number


def find_code_owner(file: str) -> int:
    """Return whether a file is the job's, a library's, or (torch's own, ours) not worth a word."""
    if file.startswith(WRAPPER):
        return HIDDEN
    if file.startswith(_OURS):
        inside = file[len(_OURS) :]
        return JOBS if inside.startswith(_STEPS) and inside != _IN_BETWEEN else HIDDEN
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    if torch and file.startswith(os.path.dirname(torch) + "/"):
        return HIDDEN
    if _LIBRARY.search(file) or file.startswith(_STANDARD):
        return LIBRARY
    return JOBS


def _format_site(frames: list[FrameType]) -> str:
    owners = [find_code_owner(frame.f_code.co_filename) for frame in frames]
    own = next(
        (at for at, owner in enumerate(owners) if owner == JOBS and _is_file(frames[at])), None
    )
    end = min(DEEPEST, len(frames)) if own is None or own >= DEEPEST else own + 1
    shown = [f for f, owner in zip(frames[:end], owners, strict=False) if owner != HIDDEN]
    if own is not None and own < end:
        site, between = shown[-1:], shown[:-1]
    else:
        site, between = shown[:1] or frames[:1], shown[1:]
    far = frames[own] if own is not None and own >= end else None
    file = frames[own] if own is not None else None
    outer = end if own is None else own + 1
    return "\n".join(
        [
            *map(_format_frame, site),
            _format_frames_between(between),
            "" if file is None else _absolute_path(file),
            "" if far is None else _format_frame(far),
            " < ".join(map(_format_caller, filter(_is_shown, frames[outer:]))),
        ]
    )


def _is_file(frame: FrameType) -> bool:
    """Return whether a frame is of a file, not of what starts a process (`python -c`)."""
    return frame.f_code.co_filename != "<string>"


def _is_shown(frame: FrameType) -> bool:
    """Return whether a frame tells anything of the way: not what starts a program or a process."""
    file = frame.f_code.co_filename
    return not file.startswith("<") and find_code_owner(file) != HIDDEN


def _format_caller(frame: FrameType) -> str:
    """Return a frame of the job with its whole path, so that its source can be read."""
    if find_code_owner(frame.f_code.co_filename) != JOBS:
        return _format_frame(frame)
    return f"{_absolute_path(frame)}:{frame.f_lineno} {frame.f_code.co_name}"


def _absolute_path(frame: FrameType) -> str:
    return os.path.abspath(frame.f_code.co_filename)


def _format_frame(frame: FrameType) -> str:
    code = frame.f_code
    file = code.co_filename
    below = _BELOW_LIBRARY.sub("", file)
    name = getattr(code, "co_qualname", code.co_name).replace(".<locals>", "")
    return f"{below if below != file else os.path.basename(file)}:{frame.f_lineno} {name}"


def _format_frames_between(frames: list[FrameType]) -> str:
    codes = [(f.f_code, f.f_lineno) for f in frames]
    return " < ".join(f"{os.path.basename(c.co_filename)}:{n} {c.co_name}" for c, n in codes)
