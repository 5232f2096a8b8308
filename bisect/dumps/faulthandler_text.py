"""What Python's faulthandler wrote: after a time limit, at a fatal signal, or when asked.

A dump has the threads newest first, so the main one comes last; a file may hold many dumps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..evidence.further_stacks import parse_faulthandler
from .blocked import blocked
from .dumped import OUTERMOST, Dumped, Line

HEAD = re.compile(
    r"(?P<new>Timeout \(\d|Fatal Python error: )"
    r"|(?:Current thread|Thread) (?P<id>0x[0-9a-fA-F]{1,16}) "
    r"(?:\[.*\] )?\(most recent call first\):"
    r"|(?P<alone>Stack) \(most recent call first\):"
)
_MAIN_ENDS = tuple(f" in {name}" for name in OUTERMOST)
_FRAME = re.compile(r'\s*File ".*", line ')
_FATAL = "Fatal Python error: "
_UNKNOWN = -1  # in place of the pid, which a dump does not tell


def parse(lines: Sequence[Line], file: str) -> list[Dumped]:
    """Return what each dump in `lines` shows, one after the other."""
    found = []
    for dump in _dumps(lines):
        text = "\n".join(re.sub(r"^Stack \(", "Thread 0x0 (", one.text) for one in dump)
        threads = parse_faulthandler(text, _UNKNOWN)
        if any(thread.frames for thread in threads):
            call = blocked(threads[0].frames)
            fatal = dump[0].text.removeprefix(_FATAL) if _FATAL in dump[0].text else ""
            ids = [match["id"] for one in dump if (match := HEAD.match(one.text)) and match["id"]]
            found.append(
                Dumped(
                    tool="faulthandler",
                    threads=threads,
                    file=file,
                    line=dump[0].number,
                    call=call,
                    thread=ids[-1] if ids else "",
                    fatal=fatal,
                )
            )
    return found


def _dumps(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Yield the lines of each dump: one begins by its own head, or where a thread comes again."""
    dump: list[Line] = []
    seen: set[str] = set()
    complete = False  # the main thread has come
    for one in lines:
        match = HEAD.match(one.text)
        again = match and (match["new"] or match["alone"] or match["id"] in seen or complete)
        if again and dump:
            yield dump
            dump, seen, complete = [], set(), False
        if match and match["id"]:
            seen.add(match["id"])
        if _FRAME.match(one.text):  # the last of a thread is its outermost
            complete = one.text.endswith(_MAIN_ENDS)
        dump.append(one)
    if dump:
        yield dump
