"""What `py-spy dump` prints for people, with and without --native, --locals, --subprocesses.

    Process 4711: python train.py
    Python v3.11.7 (/usr/bin/python3.11)
    Parent Process 4700: torchrun train.py

    Thread 4711 (idle): "MainThread"
        all_reduce (torch/distributed/distributed_c10d.py:3252)
                rank: 0    (a local variable, below "Locals:")
        pthread_cond_wait (libc.so.6)

Our own stacks/rank-N.txt has the same frames below another head.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..evidence import frame_locals
from ..facts import Frame, Thread
from ..rank.masking import mask_command
from .blocked import blocked
from .dumped import Dumped, Line
from .paths import is_native, whole

HEAD = re.compile(r"Process (?P<pid>\d{1,9}): ?(?P<command>.*)")
OURS = re.compile(r"rank (?P<rank>\d{1,6})(?: on (?P<host>\S+))? pid (?P<pid>\d{1,9})\b")
_PARENT = re.compile(r"Parent Process (?P<pid>\d{1,9}):")
THREAD = re.compile(
    r"Thread (?P<id>(?:0x)?[0-9A-Fa-f]{1,18}) \((?P<state>[\w+, ]+)\)(?:: \"?(?P<name>.*?)\"?)?$"
)
_FRAME = re.compile(r" {4}(?P<name>\S.*?) \((?P<file>[^()]*?)(?::(?P<line>\d{1,9}))?\)$")
_LOCAL = re.compile(r" {8,12}(?P<name>\w+)(?:: | = )(?P<value>.*)$")


def parse(lines: Sequence[Line], file: str) -> list[Dumped]:
    """Return the process that `lines` show, which begin with its head; none without a thread."""
    head = HEAD.match(lines[0].text)
    ours = None if head else OURS.match(lines[0].text)
    found = head or ours
    threads = list(_threads(lines))
    if found is None or not threads:
        return []
    pid = int(found["pid"])
    parent = next((m for one in lines[:5] if (m := _PARENT.match(one.text))), None)
    # A process in a container has other ids inside it.
    by_name = next((t for t in threads if t.name == "MainThread"), threads[0])
    main = next((t for t in threads if t.os_id == pid), by_name)
    threads.sort(key=lambda thread: thread is not main)
    command = head["command"] if head else ""
    return [
        Dumped(
            tool="py-spy",
            threads=tuple(threads),
            file=file,
            line=lines[0].number,
            pid=pid,
            parent=int(parent["pid"]) if parent else None,
            command=" ".join(mask_command(command.split(" "))),
            host=(ours["host"] or "") if ours else "",
            rank=int(ours["rank"]) if ours else None,
            call="" if main.active else blocked(main.frames),
        )
    ]


def _threads(lines: Sequence[Line]) -> Iterator[Thread]:
    """Yield the threads in the order in which they stand there."""
    made: Thread | None = None
    frames: list[Frame] = []
    locals_: list[tuple[str, str]] = []

    def close() -> None:
        if frames and locals_:
            kept = frame_locals.kept(frames[-1], locals_)
            frames[-1] = replace(frames[-1], locals=(*kept, *numbers_of(locals_, kept)))
        locals_.clear()

    for one in lines:
        if match := THREAD.match(one.text):
            close()
            if made is not None:
                yield replace(made, frames=tuple(frames))
            made, frames = _thread(match), []
        elif made is not None and (match := _FRAME.match(one.text)):
            close()
            frames.append(_frame(match))
        elif frames and (match := _LOCAL.match(one.text)):
            locals_.append((match["name"], match["value"]))
    close()
    if made is not None:
        yield replace(made, frames=tuple(frames))


def numbers_of(
    found: Sequence[tuple[str, str]], kept: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return the rank and the number of ranks among locals, where `kept` has them not."""
    known = {name for name, _ in kept}
    wanted = ("rank", "global_rank", "world_size", "nprocs")
    return [(n, v) for n, v in found if n in wanted and n not in known and v.isdecimal()]


def _thread(match: re.Match[str]) -> Thread:
    text, state = match["id"], match["state"]
    try:
        os_id = int(text, 16 if text.startswith("0x") else 10)
    except ValueError:
        os_id = 0
    active = "active" in state and "inactive" not in state
    gil = "gil" in state.lower().replace("+", " ").split() or "GIL" in state
    return Thread(os_id or None, match["name"] or None, active, gil, ())


def _frame(match: re.Match[str]) -> Frame:
    file, line = match["file"], match["line"]
    native = is_native(file, line is not None)
    return Frame(match["name"], file if native else whole(file), int(line or 0), native)
