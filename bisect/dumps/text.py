"""A text that holds stacks, perhaps of several tools and ranks, perhaps among other output."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ..saved_log.prefixes import stripped
from . import faulthandler_text, py_spy_text, pystack_text
from .dumped import Contents, Dumped, Line, Unreadable

_Parse = Callable[[Sequence[Line], str], list[Dumped]]
_FORMATS: tuple[tuple[re.Pattern[str], _Parse], ...] = (
    (py_spy_text.HEAD, py_spy_text.parse),
    (py_spy_text.OURS, py_spy_text.parse),
    (pystack_text.HEAD, pystack_text.parse),
    (faulthandler_text.HEAD, faulthandler_text.parse),
)
# What people (and their scripts) write over a stack: "=== rank 3 ===", "[rank 3]", "Rank: 3".
_TITLE = re.compile(r"(?! {4})[^\w]{0,12}(?:global )?rank[\s:=#_-]{0,3}(\d{1,6})\b", re.IGNORECASE)
_FARTHEST = 3  # lines between a title and what it is of


def read(text: str, file: str) -> Contents:
    """Return all processes that a text shows, those of each rank in their order."""
    tasks: dict[int | None, list[Line]] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = stripped(raw)
        tasks.setdefault(line.task, []).append(Line(number, line.text.rstrip(), line.task))
    found: list[Dumped] = []
    bare: list[int] = []  # lines of heads with nothing below them
    for lines in tasks.values():
        for parse, part, title in _parts(lines):
            processes = parse(part, file)
            # Of what looks at others the prefix says where it ran itself.
            by_itself = parse is faulthandler_text.parse and part[0].task is not None
            rank = part[0].task if by_itself else title
            found += [one if one.rank is not None else replace(one, rank=rank) for one in processes]
            bare += [] if processes else [part[0].number]
    found.sort(key=lambda one: one.line)
    fact = "the head of a dump without a frame below it: it is cut off"
    errors = [Unreadable(file, min(bare), fact)] if bare and not found else []
    return Contents(tuple(found), unreadable=tuple(errors))


def _parts(lines: Sequence[Line]) -> Iterator[tuple[_Parse, list[Line], int | None]]:
    """Yield the lines from one head to the next of another process, with their parser and the rank
    that a title over them names.
    """
    parse: _Parse | None = None
    part: list[Line] = []
    title: tuple[int, int] | None = None  # rank, and the index of its line
    named: int | None = None
    for at, line in enumerate(lines):
        begins = _begun(line.text)
        if begins is not None and not (begins is parse and _goes_on(begins, part, title)):
            if parse is not None:
                yield parse, part, named
            parse, part = begins, []
            named = title[0] if title and at - title[1] <= _FARTHEST else None
            # In our own files another head follows some lines below the one with the rank.
            ours = py_spy_text.OURS.match(line.text)
            title = (int(ours["rank"]), at + len(lines)) if ours else None
        elif py_spy_text.THREAD.match(line.text):
            title = None
        elif begins is None and (match := _TITLE.match(line.text)):
            title = (int(match[1]), at)
        part.append(line)
    if parse is not None:
        yield parse, part, named


def _begun(text: str) -> _Parse | None:
    return next((parse for head, parse in _FORMATS if head.match(text)), None)


def _goes_on(parse: _Parse, part: Sequence[Line], title: tuple[int, int] | None) -> bool:
    """Return whether a head is one of a further thread: py-spy's heads are the process's, those of
    the others a thread's, and a title between them says that another process begins.
    """
    return parse is not py_spy_text.parse and title is None and bool(part)
