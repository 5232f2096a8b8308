"""What `pystack remote` prints, with and without --native and --locals.

It names neither the process nor its rank. The kernel numbers a process by its first thread: the one
that Python's threading has not started.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..evidence.further_stacks import parse_pystack
from ..facts import Frame, Thread
from .blocked import blocked
from .dumped import OUTERMOST, Dumped, Line

HEAD = re.compile(r"Traceback for thread (?P<id>\d{1,18}) ")
_PYTHON_FRAME = re.compile(r" {4}\(Python\) File ")
_OUTERMOST = re.compile(rf" {{4}}\(Python\) File .*, in (?:{'|'.join(OUTERMOST)})$")
_SOURCE = re.compile(r" {8}\S")
_LIBRARY = re.compile(r" \((?:inlined|[^()]*)\)$")  # after a function of C: where it lies


def parse(lines: Sequence[Line], file: str) -> list[Dumped]:
    """Return the processes that `lines` show, which begin with the head of a thread."""
    return [one for part in _parted(lines) for one in _process(part, file)]


def _parted(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Yield the lines of each process: its main thread comes last."""
    part: list[Line] = []
    complete, is_outermost = False, False
    for one in lines:
        if HEAD.match(one.text):
            if complete:
                yield part
                part, complete = [], False
            is_outermost = True
        elif is_outermost and _PYTHON_FRAME.match(one.text):
            complete, is_outermost = bool(_OUTERMOST.match(one.text)), False
        part.append(one)
    yield part


def _process(lines: Sequence[Line], file: str) -> list[Dumped]:
    text = "\n".join(one.text for one in lines)
    threads = [replace(t, frames=_plain(t)) for t in parse_pystack(text, 0)]
    if not threads:
        return []
    threads.sort(key=lambda thread: (_is_started(thread), thread.os_id))
    pid = threads[0].os_id or 0
    sleeping = _last_source(lines, pid)
    call = blocked(threads[0].frames, sleeping)
    return [Dumped("pystack", tuple(threads), file, lines[0].number, pid, call=call)]


def _is_started(thread: Thread) -> bool:
    """Return whether threading started a thread: its outermost Python frame says so."""
    outermost = next((f for f in reversed(thread.frames) if not f.native), None)
    return outermost is not None and outermost.file.endswith("/threading.py")


def _plain(thread: Thread) -> tuple[Frame, ...]:
    return tuple(_without_library(f) if f.native else f for f in thread.frames)


def _without_library(frame: Frame) -> Frame:
    name = frame.name
    while match := _LIBRARY.search(name):
        name = name[: match.start()]
    return replace(frame, name=name or frame.name)


def _last_source(lines: Sequence[Line], pid: int) -> str:
    """Return the line of the innermost Python frame of the main thread, as it stands there."""
    found = ""
    for text, after in _pairs(_of_main(lines, pid)):
        if _PYTHON_FRAME.match(text):
            found = after.strip() if _SOURCE.match(after) else ""
    return found


def _of_main(lines: Sequence[Line], pid: int) -> Iterator[str]:
    inside = False
    for one in lines:
        if match := HEAD.match(one.text):
            inside = int(match["id"]) == pid
        elif inside:
            yield one.text


def _pairs(texts: Iterator[str]) -> Iterator[tuple[str, str]]:
    known = list(texts)
    return zip(known, [*known[1:], ""], strict=False)
