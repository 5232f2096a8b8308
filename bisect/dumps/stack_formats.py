"""The formats of stacks: what py-spy, pystack and faulthandler print, one or several in a text,
perhaps among other output, and py-spy's JSON.

`py-spy dump` prints, with and without --native, --locals, --subprocesses:

    Process 4711: python train.py
    Python v3.11.7 (/usr/bin/python3.11)
    Parent Process 4700: torchrun train.py

    Thread 4711 (idle): "MainThread"
        all_reduce (torch/distributed/distributed_c10d.py:3252)
                rank: 0    (a local variable, below "Locals:")
        pthread_cond_wait (libc.so.6)

Our own stacks/rank-N.txt has the same frames below another head.

`pystack remote`, with and without --native and --locals, names neither the process nor its rank.
The kernel numbers a process by its first thread: the one that Python's threading has not
started.

Python's faulthandler dumps after a time limit, at a fatal signal, or when asked. A dump has the
threads newest first, so the main one comes last; a file may hold many dumps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..base.line_prefixes import strip_prefixes
from ..base.masking import mask_command
from ..base.process_facts import Frame, Thread
from ..evidence import stacks
from ..evidence.stacks import parse_faulthandler, parse_py_spy, parse_pystack
from .contents import (
    OUTERMOST_FUNCTIONS,
    Contents,
    DumpedProcess,
    FileLine,
    Unreadable,
    complete_path,
    find_syscall,
    is_native_file,
)


def is_py_spy_json(data: Any) -> bool:
    """Return whether `data` has the form of a dump."""
    return (
        isinstance(data, list)
        and bool(data)
        and all(isinstance(one, dict) and "frames" in one for one in data)
    )


def read_py_spy_json(data: Any, file: str) -> Contents:
    """Return the process that a dump shows."""
    pid = next((one["pid"] for one in data if type(one.get("pid")) is int), None)
    threads = parse_py_spy(json.dumps(data), pid or 0)
    if pid is None:
        pid = _find_main_thread(threads)
    if not any(thread.frames for thread in threads):
        return Contents(unreadable=(Unreadable(file, None, "a py-spy dump without a frame"),))
    ordered = sorted(threads, key=lambda thread: thread.os_id != pid)
    call = "" if ordered[0].active else find_syscall(ordered[0].frames)
    return Contents((DumpedProcess("py-spy", tuple(ordered), file, 1, pid, call=call),))


def _find_main_thread(threads: tuple[Thread, ...]) -> int | None:
    named = next((t.os_id for t in threads if t.name == "MainThread"), None)
    return named or min((t.os_id for t in threads if t.os_id), default=None)


PY_SPY_HEAD = re.compile(r"Process (?P<pid>\d{1,9}): ?(?P<command>.*)")
OUR_HEAD = re.compile(r"rank (?P<rank>\d{1,6})(?: on (?P<host>\S+))? pid (?P<pid>\d{1,9})\b")
_PY_SPY_PARENT = re.compile(r"Parent Process (?P<pid>\d{1,9}):")
PY_SPY_THREAD = re.compile(
    r"Thread (?P<id>(?:0x)?[0-9A-Fa-f]{1,18}) \((?P<state>[\w+, ]+)\)(?:: \"?(?P<name>.*?)\"?)?$"
)
_PY_SPY_FRAME = re.compile(r" {4}(?P<name>\S.*?) \((?P<file>[^()]*?)(?::(?P<line>\d{1,9}))?\)$")
_PY_SPY_LOCAL = re.compile(r" {8,12}(?P<name>\w+)(?:: | = )(?P<value>.*)$")


def read_py_spy_text(lines: Sequence[FileLine], file: str) -> list[DumpedProcess]:
    """Return the process that `lines` show, which begin with its head; none without a thread."""
    head = PY_SPY_HEAD.match(lines[0].text)
    ours = None if head else OUR_HEAD.match(lines[0].text)
    found = head or ours
    threads = list(_read_py_spy_threads(lines))
    if found is None or not threads:
        return []
    pid = int(found["pid"])
    parent = next((m for one in lines[:5] if (m := _PY_SPY_PARENT.match(one.text))), None)
    # A process in a container has other ids inside it.
    by_name = next((t for t in threads if t.name == "MainThread"), threads[0])
    main = next((t for t in threads if t.os_id == pid), by_name)
    threads.sort(key=lambda thread: thread is not main)
    command = head["command"] if head else ""
    return [
        DumpedProcess(
            tool="py-spy",
            threads=tuple(threads),
            file=file,
            line=lines[0].number,
            pid=pid,
            parent=int(parent["pid"]) if parent else None,
            command=" ".join(mask_command(command.split(" "))),
            host=(ours["host"] or "") if ours else "",
            rank=int(ours["rank"]) if ours else None,
            call="" if main.active else find_syscall(main.frames),
        )
    ]


def _read_py_spy_threads(lines: Sequence[FileLine]) -> Iterator[Thread]:
    """Yield the threads in the order in which they stand there."""
    made: Thread | None = None
    frames: list[Frame] = []
    locals_: list[tuple[str, str]] = []

    def close() -> None:
        if frames and locals_:
            kept = stacks.keep_locals(frames[-1], locals_)
            frames[-1] = replace(frames[-1], locals=(*kept, *find_rank_locals(locals_, kept)))
        locals_.clear()

    for one in lines:
        if match := PY_SPY_THREAD.match(one.text):
            close()
            if made is not None:
                yield replace(made, frames=tuple(frames))
            made, frames = _make_thread(match), []
        elif made is not None and (match := _PY_SPY_FRAME.match(one.text)):
            close()
            frames.append(_make_frame(match))
        elif frames and (match := _PY_SPY_LOCAL.match(one.text)):
            locals_.append((match["name"], match["value"]))
    close()
    if made is not None:
        yield replace(made, frames=tuple(frames))


def find_rank_locals(
    found: Sequence[tuple[str, str]], kept: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return the rank and the number of ranks among locals, where `kept` has them not."""
    known = {name for name, _ in kept}
    wanted = ("rank", "global_rank", "world_size", "nprocs")
    return [(n, v) for n, v in found if n in wanted and n not in known and v.isdecimal()]


def _make_thread(match: re.Match[str]) -> Thread:
    text, state = match["id"], match["state"]
    try:
        os_id = int(text, 16 if text.startswith("0x") else 10)
    except ValueError:
        os_id = 0
    active = "active" in state and "inactive" not in state
    gil = "gil" in state.lower().replace("+", " ").split() or "GIL" in state
    return Thread(os_id or None, match["name"] or None, active, gil, ())


def _make_frame(match: re.Match[str]) -> Frame:
    file, line = match["file"], match["line"]
    native = is_native_file(file, line is not None)
    return Frame(match["name"], file if native else complete_path(file), int(line or 0), native)


PYSTACK_HEAD = re.compile(r"Traceback for thread (?P<id>\d{1,18}) ")
_PYSTACK_FRAME = re.compile(r" {4}\(Python\) File ")
_PYSTACK_OUTERMOST = re.compile(
    rf" {{4}}\(Python\) File .*, in (?:{'|'.join(OUTERMOST_FUNCTIONS)})$"
)
_PYSTACK_SOURCE = re.compile(r" {8}\S")
_PYSTACK_LIBRARY = re.compile(r" \((?:inlined|[^()]*)\)$")  # after a function of C: where it lies


def read_pystack_text(lines: Sequence[FileLine], file: str) -> list[DumpedProcess]:
    """Return the processes that `lines` show, which begin with the head of a thread."""
    return [
        one for part in _split_pystack_processes(lines) for one in _make_pystack_process(part, file)
    ]


def _split_pystack_processes(lines: Sequence[FileLine]) -> Iterator[list[FileLine]]:
    """Yield the lines of each process: its main thread comes last."""
    part: list[FileLine] = []
    complete, is_outermost = False, False
    for one in lines:
        if PYSTACK_HEAD.match(one.text):
            if complete:
                yield part
                part, complete = [], False
            is_outermost = True
        elif is_outermost and _PYSTACK_FRAME.match(one.text):
            complete, is_outermost = bool(_PYSTACK_OUTERMOST.match(one.text)), False
        part.append(one)
    yield part


def _make_pystack_process(lines: Sequence[FileLine], file: str) -> list[DumpedProcess]:
    text = "\n".join(one.text for one in lines)
    threads = [replace(t, frames=_frames_without_libraries(t)) for t in parse_pystack(text, 0)]
    if not threads:
        return []
    threads.sort(key=lambda thread: (_is_started_by_threading(thread), thread.os_id))
    pid = threads[0].os_id or 0
    sleeping = _last_source(lines, pid)
    call = find_syscall(threads[0].frames, sleeping)
    return [DumpedProcess("pystack", tuple(threads), file, lines[0].number, pid, call=call)]


def _is_started_by_threading(thread: Thread) -> bool:
    """Return whether threading started a thread: its outermost Python frame says so."""
    outermost = next((f for f in reversed(thread.frames) if not f.native), None)
    return outermost is not None and outermost.file.endswith("/threading.py")


def _frames_without_libraries(thread: Thread) -> tuple[Frame, ...]:
    return tuple(_drop_library(f) if f.native else f for f in thread.frames)


def _drop_library(frame: Frame) -> Frame:
    name = frame.name
    while match := _PYSTACK_LIBRARY.search(name):
        name = name[: match.start()]
    return replace(frame, name=name or frame.name)


def _last_source(lines: Sequence[FileLine], pid: int) -> str:
    """Return the line of the innermost Python frame of the main thread, as it stands there."""
    found = ""
    for text, after in _pair_lines(_lines_of_main(lines, pid)):
        if _PYSTACK_FRAME.match(text):
            found = after.strip() if _PYSTACK_SOURCE.match(after) else ""
    return found


def _lines_of_main(lines: Sequence[FileLine], pid: int) -> Iterator[str]:
    inside = False
    for one in lines:
        if match := PYSTACK_HEAD.match(one.text):
            inside = int(match["id"]) == pid
        elif inside:
            yield one.text


def _pair_lines(texts: Iterator[str]) -> Iterator[tuple[str, str]]:
    known = list(texts)
    return zip(known, [*known[1:], ""], strict=False)


FAULTHANDLER_HEAD = re.compile(
    r"(?P<new>Timeout \(\d|Fatal Python error: )"
    r"|(?:Current thread|Thread) (?P<id>0x[0-9a-fA-F]{1,16}) "
    r"(?:\[.*\] )?\(most recent call first\):"
    r"|(?P<alone>Stack) \(most recent call first\):"
)
_FAULTHANDLER_OUTERMOST = tuple(f" in {name}" for name in OUTERMOST_FUNCTIONS)
_FAULTHANDLER_FRAME = re.compile(r'\s*File ".*", line ')
_FATAL_ERROR = "Fatal Python error: "
_UNKNOWN_PID = -1  # in place of the pid, which a dump does not tell


def read_faulthandler_text(lines: Sequence[FileLine], file: str) -> list[DumpedProcess]:
    """Return what each dump in `lines` shows, one after the other."""
    found = []
    for dump in _split_faulthandler_dumps(lines):
        text = "\n".join(re.sub(r"^Stack \(", "Thread 0x0 (", one.text) for one in dump)
        threads = parse_faulthandler(text, _UNKNOWN_PID)
        if any(thread.frames for thread in threads):
            call = find_syscall(threads[0].frames)
            fatal = dump[0].text.removeprefix(_FATAL_ERROR) if _FATAL_ERROR in dump[0].text else ""
            ids = [
                match["id"]
                for one in dump
                if (match := FAULTHANDLER_HEAD.match(one.text)) and match["id"]
            ]
            found.append(
                DumpedProcess(
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


def _split_faulthandler_dumps(lines: Sequence[FileLine]) -> Iterator[list[FileLine]]:
    """Yield the lines of each dump: one begins by its own head, or where a thread comes again."""
    dump: list[FileLine] = []
    seen: set[str] = set()
    complete = False  # the main thread has come
    for one in lines:
        match = FAULTHANDLER_HEAD.match(one.text)
        again = match and (match["new"] or match["alone"] or match["id"] in seen or complete)
        if again and dump:
            yield dump
            dump, seen, complete = [], set(), False
        if match and match["id"]:
            seen.add(match["id"])
        if _FAULTHANDLER_FRAME.match(one.text):  # the last of a thread is its outermost
            complete = one.text.endswith(_FAULTHANDLER_OUTERMOST)
        dump.append(one)
    if dump:
        yield dump


_Reader = Callable[[Sequence[FileLine], str], list[DumpedProcess]]
_TEXT_FORMATS: tuple[tuple[re.Pattern[str], _Reader], ...] = (
    (PY_SPY_HEAD, read_py_spy_text),
    (OUR_HEAD, read_py_spy_text),
    (PYSTACK_HEAD, read_pystack_text),
    (FAULTHANDLER_HEAD, read_faulthandler_text),
)
# What people (and their scripts) write over a stack: "=== rank 3 ===", "[rank 3]", "Rank: 3".
_TITLE = re.compile(r"(?! {4})[^\w]{0,12}(?:global )?rank[\s:=#_-]{0,3}(\d{1,6})\b", re.IGNORECASE)
_MOST_LINES_BELOW_TITLE = 3  # lines between a title and what it is of


def read_text(text: str, file: str) -> Contents:
    """Return all processes that a text shows, those of each rank in their order."""
    tasks: dict[int | None, list[FileLine]] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = strip_prefixes(raw)
        tasks.setdefault(line.task, []).append(FileLine(number, line.text.rstrip(), line.task))
    found: list[DumpedProcess] = []
    bare: list[int] = []  # lines of heads with nothing below them
    for lines in tasks.values():
        for reader, part, title in _split_text(lines):
            processes = reader(part, file)
            # Of what looks at others the prefix says where it ran itself.
            by_itself = reader is read_faulthandler_text and part[0].task is not None
            rank = part[0].task if by_itself else title
            found += [one if one.rank is not None else replace(one, rank=rank) for one in processes]
            bare += [] if processes else [part[0].number]
    found.sort(key=lambda one: one.line)
    fact = "the head of a dump without a frame below it: it is cut off"
    errors = [Unreadable(file, min(bare), fact)] if bare and not found else []
    return Contents(tuple(found), unreadable=tuple(errors))


def _split_text(lines: Sequence[FileLine]) -> Iterator[tuple[_Reader, list[FileLine], int | None]]:
    """Yield the lines from one head to the next of another process, with their reader and the rank
    that a title over them names.
    """
    reader: _Reader | None = None
    part: list[FileLine] = []
    title: tuple[int, int] | None = None  # rank, and the index of its line
    named: int | None = None
    for at, line in enumerate(lines):
        begins = _find_reader(line.text)
        if begins is not None and not (
            begins is reader and _continues_process(begins, part, title)
        ):
            if reader is not None:
                yield reader, part, named
            reader, part = begins, []
            named = title[0] if title and at - title[1] <= _MOST_LINES_BELOW_TITLE else None
            # In our own files another head follows some lines below the one with the rank.
            ours = OUR_HEAD.match(line.text)
            title = (int(ours["rank"]), at + len(lines)) if ours else None
        elif PY_SPY_THREAD.match(line.text):
            title = None
        elif begins is None and (match := _TITLE.match(line.text)):
            title = (int(match[1]), at)
        part.append(line)
    if reader is not None:
        yield reader, part, named


def _find_reader(text: str) -> _Reader | None:
    return next((reader for head, reader in _TEXT_FORMATS if head.match(text)), None)


def _continues_process(
    reader: _Reader, part: Sequence[FileLine], title: tuple[int, int] | None
) -> bool:
    """Return whether a head is one of a further thread: py-spy's heads are the process's, those of
    the others a thread's, and a title between them says that another process begins.
    """
    return reader is not read_py_spy_text and title is None and bool(part)
