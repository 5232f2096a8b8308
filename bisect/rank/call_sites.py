"""Where the job called a function of torch, found in well under a microsecond.

A call site is text, a line each:
- the innermost frame of the job's own code ("train.py:88 step"), or of a library, if the job's own
  is further off than is looked each time
- the frames of libraries that lie between it and torch ("ddp.py:308 barrier"), innermost first
- the path of the job's own file
- if the site is a library's: the job's own frame from which it was called this first time
- the time of this first time

It is worked out once for each way in; after that only code objects and positions are compared.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from .function_patching import HIDDEN_FILE as WRAPPER

# Frames walked, at 0.12 µs each: a hook of the job lies a few frames off, its call of fit() far.
DEEPEST = 5
FURTHEST = 64  # the first time
_WALK = range(DEEPEST)
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
        self._jobs: set[int] = set()  # ids of the job's own code
        self._known: dict[Any, int] = {}
        # Code is known by its id, which must not be given away again.
        self._kept: list[CodeType] = []

    def of(self, frame: FrameType | None) -> int:
        """Return the number of the call site that `frame`, the caller of torch, belongs to."""
        key: Any = None
        walked: Any = frame
        jobs, known = self._jobs, self._known
        try:
            for _ in _WALK:
                code = id(walked.f_code)
                key = (key, code, walked.f_lasti)
                if code in jobs:
                    break
                walked = walked.f_back
        except AttributeError:  # there is no further frame
            pass
        found = known.get(key)
        return self._new(frame) if found is None else found

    def _new(self, frame: FrameType | None) -> int:
        """Work a site out; 0 once there are too many."""
        if len(self._known) >= _MOST_SITES:
            return 0
        frames: list[FrameType] = []
        key: Any = None
        while frame is not None and len(frames) < DEEPEST:
            frames.append(frame)
            key = (key, id(frame.f_code), frame.f_lasti)
            if find_code_owner(frame.f_code.co_filename) == JOBS:
                self._jobs.add(id(frame.f_code))
                break
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
    shown = [f for f in frames if find_code_owner(f.f_code.co_filename) != HIDDEN]
    last = shown[-1] if shown else None
    if last is not None and find_code_owner(last.f_code.co_filename) == JOBS:
        return "\n".join(
            [_format_frame(last), _format_frames_between(shown[:-1]), _absolute_path(last), "", ""]
        )
    inner = shown[:1] or frames[:1]
    far = _find_job_frame(frames[-1]) if frames else None
    origin = (
        ["", "", ""]
        if far is None
        else [_absolute_path(far), _format_frame(far), f"{time.monotonic():.6f}"]
    )
    return "\n".join([*map(_format_frame, inner), _format_frames_between(shown[1:]), *origin])


def _find_job_frame(frame: FrameType) -> FrameType | None:
    """Return the innermost frame of the job's own outside of `frame`."""
    found = frame.f_back
    for _ in range(FURTHEST):
        if found is None or find_code_owner(found.f_code.co_filename) == JOBS:
            return found
        found = found.f_back
    return None


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
