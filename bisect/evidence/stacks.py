"""Python stacks of another process: by py-spy; by pystack, if it is installed, where py-spy gave
none; or from a file that faulthandler wrote in the rank.

pystack and faulthandler name functions without the class that they belong to. py-spy reads all
local variables, and words them its own way: text in double quotes (up to 4096 bytes, of which it
shows some 380), lists cut short with "...", objects as `<Class at 0x...>`. What no row of
base/library_functions.py names is forgotten at once.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..base.deadline import MOST_OUTPUT, Ran, call_with_limit, run_command
from ..base.lazy_dataclass import dataclass
from ..base.library_functions import (
    C10D_WRAPPER,
    GROUP_GIVEN,
    GROUP_NOT_GIVEN,
    find_library_functions,
    is_library_file,
    parse_text,
)
from ..base.masking import mask_command, mask_text
from ..base.proc import read_stat
from ..base.process_facts import Frame, Thread
from ..base.words import format_bytes
from .external_tools import find_program

_SHARE_WITH_LOCALS = 0.6  # of the time: the rest is for a look without, should they not come


@dataclass(frozen=True)
class Stacks:
    """Python's threads, the main one first; empty with a sentence that says why."""

    threads: tuple[Thread, ...] = ()
    missing: str = ""
    hopeless: bool = False  # nothing else will read this process from outside either


async def read_stacks(
    pid: int,
    *,
    native: bool = False,
    with_locals: bool = False,
    limit: float = 3.0,
    resume: Callable[[int], object] | None = None,
) -> Stacks:
    """Return the stacks of a process, within `limit` seconds.

    Without `native` the process is not paused. With it, it is, for 20 to 400 ms; if py-spy has to
    be killed meanwhile and the process was not stopped before but is now, `resume(pid)` is called
    (it is to send SIGCONT) or the sentence in `missing` asks for it. `with_locals` (not with
    `native`) adds those that `base/library_functions.py` names; where that does not work, the
    stacks come without.
    """
    if native or not with_locals:
        return await _run_py_spy(pid, "--native" if native else "--nonblocking", limit, resume)
    begun = time.monotonic()
    seen = await _run_py_spy(
        pid, "--nonblocking", limit * _SHARE_WITH_LOCALS, resume, locals_too=True
    )
    left = limit - (time.monotonic() - begun)
    if seen.threads or seen.hopeless or left < 0.1:
        return seen
    plain = await _run_py_spy(pid, "--nonblocking", left, resume)
    if plain.threads:
        return replace(plain, missing=f"{seen.missing} Without locals it did.")
    return plain


async def _run_py_spy(
    pid: int,
    how: str,
    limit: float,
    resume: Callable[[int], object] | None,
    locals_too: bool = False,
) -> Stacks:
    spy = find_program()
    if spy is None:
        return Stacks(missing="py-spy is not installed: no Python stacks.")
    stopped_before = is_stopped(pid)
    command = [spy, "dump", "--json", "--pid", str(pid), how]
    # Asked for twice it shows more of a long text: 380 characters, not 128.
    command += ["--locals", "--locals"] if locals_too else []
    try:
        # run() kills after its limit; the second limit is for a start that hangs.
        ran = await call_with_limit(
            run_command, command, limit, limit=limit + 0.3, key=("py-spy", pid)
        )
    except TimeoutError:
        return Stacks(missing=f"py-spy did not start, or did not end, on {pid}.")
    except OSError as error:
        return Stacks(missing=f"py-spy could not be started ({error.strerror or error}).")
    if ran.status is None:
        sentence = _handle_timeout(pid, ran.seconds, stopped_before, resume)
        if ran.printed_too_much:
            sentence = (
                f"py-spy was ended: it printed more than {format_bytes(MOST_OUTPUT)} on {pid}."
            )
        return Stacks(missing=sentence)
    if ran.status != 0:
        hopeless, sentence = explain_py_spy_failure(pid, ran)
        return Stacks(missing=sentence, hopeless=hopeless)
    threads = parse_py_spy(ran.out, pid)
    return Stacks(threads, "" if threads else f"py-spy saw no Python threads in {pid}.")


def is_stopped(pid: int) -> bool:
    """Return True for a process that is stopped by a signal or a debugger."""
    found = read_stat(pid)
    return found is not None and found.state in "Tt"


def _handle_timeout(
    pid: int, seconds: float, stopped_before: bool, resume: Callable[[int], object] | None
) -> str:
    sentence = f"py-spy gave no answer on {pid} within {seconds:.1f} s and was killed."
    if not stopped_before and is_stopped(pid):
        if resume is None:
            return f"{sentence} It left {pid} stopped: it needs SIGCONT."
        resume(pid)
        return f"{sentence} It left {pid} stopped, so {pid} was told to go on."
    return sentence


async def why_py_spy_cannot_look(pid: int, limit: float = 3.0) -> str:
    """Return "" if py-spy may read a process, else the reason as a sentence."""
    return (await read_stacks(pid, limit=limit)).missing


def explain_py_spy_failure(pid: int, ran: Ran) -> tuple[bool, str]:
    """Return why py-spy failed: whether other programs would fail too, and a sentence."""
    if read_stat(pid) is None:
        return True, f"{pid} is gone."
    text = ran.err.lower()
    if "permission denied" in text or "operation not permitted" in text:
        return True, f"py-spy may not read {pid} (no permission)."
    if "python version" in text or "python interpreter" in text:
        return True, f"{pid} is not running Python, or not yet."
    first = next((line for line in ran.err.splitlines() if line.strip()), "no message")
    return False, f"py-spy failed on {pid}: {first.removeprefix('Error: ').strip()}"


def parse_py_spy(text: bytes | str, pid: int) -> tuple[Thread, ...]:
    """Return the threads in what `py-spy dump --json` wrote, main thread first; () for garbage."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    found = [_parse_thread(one) for one in data if isinstance(one, dict)] if _is_list(data) else []
    return tuple(sorted(found, key=lambda thread: thread.os_id != pid))


def _is_list(data: object) -> bool:
    return isinstance(data, list)


def _parse_thread(data: dict[str, Any]) -> Thread:
    name, os_id, frames = (data.get(key) for key in ("thread_name", "os_thread_id", "frames"))
    return Thread(
        os_id=os_id if type(os_id) is int else None,
        name=name if isinstance(name, str) else None,
        active=data.get("active") is True,
        owns_gil=data.get("owns_gil") is True,
        frames=tuple(_parse_frame(one) for one in frames if isinstance(one, dict))
        if isinstance(frames, list)
        else (),
    )


# What py-spy calls a native function whose library it does not know.
_ADDRESS = re.compile(r"0x[0-9a-f]+")


def _parse_frame(data: dict[str, Any]) -> Frame:
    line, library = data.get("line"), data.get("module")
    file = str(data.get("filename") or "")
    name = str(data.get("name") or "?")
    frame = Frame(
        name=name,
        file=file,
        line=line if type(line) is int else 0,
        # Only frames of C, C++ and Cython name the library that they are in, or are an address.
        native=library is not None or _ADDRESS.fullmatch(name) is not None,
        library=library if isinstance(library, str) and library != file else "",
    )
    parsed = _parse_locals(data.get("locals"))
    if not parsed or frame.native:
        return frame
    return replace(
        frame,
        locals=keep_locals(frame, parsed),
        objects=find_objects(parsed),
        texts=find_texts(parsed),
        numbers=find_numbers(frame, parsed),
    )


def _parse_locals(data: object) -> list[tuple[str, str]]:
    if not isinstance(data, list):
        return []
    pairs = [(one.get("name"), one.get("repr")) for one in data if isinstance(one, dict)]
    return [(n, value) for n, value in pairs if isinstance(n, str) and isinstance(value, str)]


def format_stacks(pid: int, command: Iterable[str], threads: Iterable[Thread]) -> str:
    """Return the stacks as `py-spy dump` prints them, ready to attach; "" without any.

    Two things are added: the locals that we keep, and that a thread which sleeps in C has the GIL
    (to py-spy it is "idle").
    """
    lines: list[str] = []
    for thread in threads:
        state = "active" if thread.active else "idle"
        gil = "+gil" if thread.owns_gil else ""
        name = f': "{thread.name}"' if thread.name else ""
        lines.append(f"Thread {thread.os_id or '?'} ({state}{gil}){name}")
        for frame in thread.frames:
            lines.append(f"    {format_stack_line(frame)}")
            lines += [f"        {name} = {value}" for name, value in frame.locals]
    if not lines:
        return ""
    return "\n".join([f"Process {pid}: {' '.join(command)}".rstrip(": "), "", *lines, ""])


def format_stack_line(frame: Frame) -> str:
    """Return "name (file.py:12)"; the file without its folders, as py-spy shortens it."""
    where = os.path.basename(frame.file)
    return f"{frame.name} ({where}:{frame.line})" if frame.line else f"{frame.name} ({where})"


_PYSTACK_THREAD = re.compile(
    r"Traceback for thread (?P<id>\d{1,18}) (?:\((?P<name>.*)\) )?\[(?P<status>.*)\] \(most recent"
)
# Source lines are indented by eight, so none of them can look like a frame.
_PYSTACK_FRAME = re.compile(
    r' {4}\((?P<kind>Python|C)\) File "(?P<file>.*)", line (?P<line>-?\d{1,9}), in (?P<name>.*)'
)
_DUMPED_FRAME = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)')
_DUMPED_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-fA-F]+")


async def read_stacks_by_pystack(pid: int, limit: float) -> Stacks:
    """Return the stacks of a process as pystack sees them, without a pause, within `limit` seconds.

    Without a sentence where it is not installed: nobody asked for it.
    """
    pystack = find_program("pystack")
    if pystack is None:
        return Stacks()
    command = [pystack, "--no-color", "remote", "--no-block", str(pid)]
    try:
        ran = await call_with_limit(
            run_command, command, limit, limit=limit + 0.3, key=("pystack", pid)
        )
    except TimeoutError:
        return Stacks(missing=f"pystack did not start, or did not end, on {pid}.")
    except OSError as error:
        return Stacks(missing=f"pystack could not be started ({error.strerror or error}).")
    if ran.status is None:
        return Stacks(missing=f"pystack gave no answer on {pid} within {ran.seconds:.1f} s.")
    threads = parse_pystack(ran.out.decode(errors="replace"), pid) if ran.status == 0 else ()
    if threads:
        return Stacks(threads)
    return Stacks(missing=explain_py_spy_failure(pid, ran)[1].replace("py-spy", "pystack"))


def parse_pystack(printed: str, pid: int) -> tuple[Thread, ...]:
    """Return the threads in what `pystack remote` printed, the main one first; () for garbage."""
    found: list[Thread] = []
    frames: list[Frame] = []
    head: re.Match[str] | None = None

    def close() -> None:
        if head is not None and frames:
            has_gil = "Has the GIL" in head["status"]
            innermost_first = tuple(reversed(frames))
            # What it gives as a name is the kernel's, which is not Python's.
            found.append(Thread(int(head["id"]), None, has_gil, has_gil, innermost_first))

    for line in printed.splitlines():
        if match := _PYSTACK_THREAD.match(line):
            close()
            head, frames = match, []
        elif match := _PYSTACK_FRAME.fullmatch(line):
            at = max(0, int(match["line"]))
            frames.append(Frame(match["name"], match["file"], at, match["kind"] == "C"))
    close()
    return tuple(sorted(found, key=lambda thread: thread.os_id != pid))


def read_faulthandler(path: str, pid: int) -> tuple[tuple[Thread, ...], str]:
    """Return (threads, the text) of the last dump in a file that faulthandler wrote.

    ((), "") if it wrote none. May block with the file's disk: call it with a limit.
    """
    try:
        with Path(path).open(errors="replace") as file:
            dumped = file.read(1 << 20)
    except OSError:
        return (), ""
    # A timer that repeats appends: only the last dump counts.
    last = "Timeout (" + dumped.rpartition("Timeout (")[2] if "Timeout (" in dumped else dumped
    return parse_faulthandler(last, pid), last if last.strip() else ""


def parse_faulthandler(dumped: str, pid: int) -> tuple[Thread, ...]:
    """Return the threads in a dump of faulthandler, the main one first.

    It writes the main thread last (threads are listed newest first) and knows no ids of the
    kernel: only the main thread gets one, the pid. Who has the GIL it does not tell: its "Current
    thread" is the one that got the signal.
    """
    found: list[Thread] = []
    frames: list[Frame] = []
    inside = False

    def close() -> None:
        if inside:
            found.append(Thread(None, None, False, False, tuple(frames)))

    for line in dumped.splitlines():
        if _DUMPED_THREAD.match(line):
            close()
            inside, frames = True, []
        elif match := _DUMPED_FRAME.match(line):
            number = match["line"]
            at = int(number) if number.isdecimal() and len(number) < 10 else 0
            frames.append(Frame(match["name"], match["file"], at))
    close()
    if not found:
        return ()
    main = found.pop()
    return (replace(main, os_id=pid, name="MainThread"), *found)


MOST_CHARACTERS = 400


_OBJECT = re.compile(r"<([\w.]+) at (?P<address>0x[0-9a-fA-F]+)>")
_MOST_OBJECTS = 32  # of a frame
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")
_MOST_NUMBERS = 32  # of a frame
_BLANK = re.compile(r"\s")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_COMMANDS = ("args", "popenargs")
# In the job's own functions, and whole numbers only: which rank it is, where nothing else tells.
_RANKS = ("rank", "local_rank", "world_size")


def keep_locals(frame: Frame, found: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return of the locals of `frame`, as py-spy words them, those that a row names, masked."""
    if not found or frame.native:
        return ()
    if frame.file.endswith(C10D_WRAPPER):
        return _find_given_group(found)
    rows = find_library_functions(frame.file, frame.name)
    wanted = dict.fromkeys(local for row in rows for local in row.shown_locals)
    values = dict(found)
    if not wanted and not is_library_file(frame.file):
        return tuple((n, values[n]) for n in _RANKS if values.get(n, "").isdecimal())
    shown = [(local, format_value(local, values[local])) for local in wanted if local in values]
    return tuple((local, value) for local, value in shown if value)


_C10D_GROUP = "ProcessGroup at 0x"
_CUT_SHORT = "..."


def _find_given_group(found: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return as a local whether a function of torch.distributed was given a process group, by the
    arguments that its wrapper has; of these nothing is kept. () where that is not seen.
    """
    values = dict(found)
    given = [values.get(name, "") for name in ("args", "kwargs")]
    if any(_C10D_GROUP in one for one in given):
        return (("group", GROUP_GIVEN),)
    if "args" not in values or any(_CUT_SHORT in one for one in given):
        return ()
    return (("group", GROUP_NOT_GIVEN),)


def find_objects(found: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the addresses of the objects that locals are, by name: two frames with the same one
    have the same object.
    """
    matches = ((name, _OBJECT.fullmatch(value)) for name, value in found)
    return tuple((name, match["address"]) for name, match in matches if match)[:_MOST_OBJECTS]


def find_texts(found: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the locals that are a short text without a blank, which may be a path."""
    texts = ((name, parse_text(value)) for name, value in found if len(value) <= MOST_CHARACTERS)
    return tuple((name, text) for name, text in texts if text and not _BLANK.search(text))


def find_numbers(frame: Frame, found: Iterable[tuple[str, str]]) -> tuple[tuple[str, int], ...]:
    """Return the locals of one of the job's own functions that are whole numbers."""
    if frame.native or is_library_file(frame.file):
        return ()
    numbers = ((name, int(value)) for name, value in found if _WHOLE_NUMBER.fullmatch(value))
    return tuple(numbers)[:_MOST_NUMBERS]


def forget_texts(threads: Iterable[Thread]) -> tuple[Thread, ...]:
    """Return threads without the texts of their frames: some may be secret."""
    return tuple(
        replace(one, frames=tuple(replace(f, texts=()) if f.texts else f for f in one.frames))
        for one in threads
    )


_BY_CLASS = ("self", "cluster_environment")


def format_value(name: str, value: str) -> str:
    """Return a value as it may be shown, "" where it says nothing.

    The address of an object differs from rank to rank and tells nobody anything; its class does
    where it is a method's own object, or what Lightning takes for its launcher.
    """
    if value in ("?", "") or (value == "None" and "timeout" not in name):
        return ""
    if found := _OBJECT.fullmatch(value):
        return f"<{found[1]}>" if name in _BY_CLASS else ""
    if name in _COMMANDS:
        value = _mask_words(value)
    value = mask_text(value)
    return value if len(value) <= MOST_CHARACTERS else value[: MOST_CHARACTERS - 3] + "..."


def _mask_words(value: str) -> str:
    """Return a command, a list of words or one line for a shell, without secrets."""
    words = [found[1] for found in _QUOTED.finditer(value)]
    masked = iter([" ".join(mask_command(word.split(" "))) for word in mask_command(words)])
    return _QUOTED.sub(lambda found: f'"{next(masked)}"', value)
