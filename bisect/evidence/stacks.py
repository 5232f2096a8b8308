"""Python stacks of another process: by py-spy, or from what faulthandler wrote in a file."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..facts import Frame, Thread
from .aside import Ran, aside, run
from .sample import stat

_MAIN_LINE = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)')
_THREAD_LINE = re.compile(r"(?P<current>Current thread|Thread) (?P<id>0x[0-9a-fA-F]+)")


@dataclass(frozen=True)
class Stacks:
    """Python's threads, the main one first; empty with a sentence that says why."""

    threads: tuple[Thread, ...] = ()
    missing: str = ""


@functools.cache
def executable() -> str | None:
    """Return the path of py-spy: next to this interpreter, in its scripts, or on the PATH."""
    folders = [os.path.dirname(sys.executable), sysconfig.get_path("scripts")]
    for folder in folders:
        if found := shutil.which("py-spy", path=folder):
            return found
    return shutil.which("py-spy")


async def look(
    pid: int,
    *,
    native: bool = False,
    limit: float = 3.0,
    resume: Callable[[int], object] | None = None,
) -> Stacks:
    """Return the stacks of a process, within `limit` seconds.

    Without `native` the process is not paused. With it, it is, for about 0.2 s; if py-spy has to
    be killed meanwhile and the process was not stopped before but is now, `resume(pid)` is called
    (it is to send SIGCONT) or the sentence in `missing` asks for it.
    """
    spy = executable()
    if spy is None:
        return Stacks(missing="py-spy is not installed: no Python stacks.")
    stopped_before = is_stopped(pid)
    command = [spy, "dump", "--json", "--pid", str(pid)]
    command.append("--native" if native else "--nonblocking")
    try:
        # run() kills after its limit; the second limit is for a start that hangs.
        ran = await aside(run, command, limit, limit=limit + 0.3, key=("py-spy", pid))
    except TimeoutError:
        return Stacks(missing=f"py-spy did not start, or did not end, on {pid}.")
    except OSError as error:
        return Stacks(missing=f"py-spy could not be started ({error.strerror or error}).")
    if ran.status is None:
        return Stacks(missing=_cut_off(pid, ran.seconds, stopped_before, resume))
    if ran.status != 0:
        return Stacks(missing=why_not(pid, ran))
    threads = parse(ran.out, pid)
    return Stacks(threads, "" if threads else f"py-spy saw no Python threads in {pid}.")


def is_stopped(pid: int) -> bool:
    """Return True for a process that is stopped by a signal or a debugger."""
    found = stat(pid)
    return found is not None and found.state in "Tt"


def _cut_off(
    pid: int, seconds: float, stopped_before: bool, resume: Callable[[int], object] | None
) -> str:
    sentence = f"py-spy gave no answer on {pid} within {seconds:.1f} s and was killed."
    if not stopped_before and is_stopped(pid):
        if resume is None:
            return f"{sentence} It left {pid} stopped: it needs SIGCONT."
        resume(pid)
        return f"{sentence} It left {pid} stopped, so {pid} was told to go on."
    return sentence


async def can_look(pid: int, limit: float = 3.0) -> str:
    """Return "" if py-spy may read a process, else the reason as a sentence."""
    return (await look(pid, limit=limit)).missing


def why_not(pid: int, ran: Ran) -> str:
    """Return in a sentence why py-spy failed."""
    if stat(pid) is None:
        return f"{pid} is gone."
    text = ran.err.lower()
    if "permission denied" in text or "operation not permitted" in text:
        return f"py-spy may not read {pid} (no permission)."
    if "python version" in text or "python interpreter" in text:
        return f"{pid} is not running Python, or not yet."
    first = next((line for line in ran.err.splitlines() if line.strip()), "no message")
    return f"py-spy failed on {pid}: {first.removeprefix('Error: ').strip()}"


def parse(text: bytes | str, pid: int) -> tuple[Thread, ...]:
    """Return the threads in what `py-spy dump --json` wrote, main thread first; () for garbage."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    found = [_thread(one) for one in data if isinstance(one, dict)] if _is_list(data) else []
    return tuple(sorted(found, key=lambda thread: thread.os_id != pid))


def _is_list(data: object) -> bool:
    return isinstance(data, list)


def _thread(data: dict[str, Any]) -> Thread:
    name, os_id, frames = (data.get(key) for key in ("thread_name", "os_thread_id", "frames"))
    return Thread(
        os_id=os_id if type(os_id) is int else None,
        name=name if isinstance(name, str) else None,
        active=data.get("active") is True,
        owns_gil=data.get("owns_gil") is True,
        frames=tuple(_frame(one) for one in frames if isinstance(one, dict))
        if isinstance(frames, list)
        else (),
    )


def _frame(data: dict[str, Any]) -> Frame:
    line = data.get("line")
    return Frame(
        name=str(data.get("name") or "?"),
        file=str(data.get("filename") or ""),
        line=line if type(line) is int else 0,
        # Only frames of C, C++ and Cython name the library that they are in.
        native=data.get("module") is not None,
    )


def text(pid: int, command: Iterable[str], threads: Iterable[Thread]) -> str:
    """Return the stacks as `py-spy dump` prints them, ready to attach; "" without any.

    One thing is added: a thread that sleeps in C while it holds the GIL is "idle" to py-spy.
    """
    lines: list[str] = []
    for thread in threads:
        state = "active" if thread.active else "idle"
        gil = "+gil" if thread.owns_gil else ""
        name = f': "{thread.name}"' if thread.name else ""
        lines.append(f"Thread {thread.os_id or '?'} ({state}{gil}){name}")
        lines += [f"    {frame_text(frame)}" for frame in thread.frames]
    if not lines:
        return ""
    return "\n".join([f"Process {pid}: {' '.join(command)}".rstrip(": "), "", *lines, ""])


def frame_text(frame: Frame) -> str:
    """Return "name (file.py:12)"; the file without its folders, as py-spy shortens it."""
    where = os.path.basename(frame.file)
    return f"{frame.name} ({where}:{frame.line})" if frame.line else f"{frame.name} ({where})"


def read_faulthandler(path: str, pid: int) -> tuple[tuple[Thread, ...], str]:
    """Return (threads, the text) of the last dump in a file that faulthandler wrote.

    ((), "") if it wrote none. May block with the file's disk: call it aside.
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
    kernel: only the main thread gets one, the pid.
    """
    found: list[Thread] = []
    frames: list[Frame] = []
    head: re.Match[str] | None = None

    def close() -> None:
        if head is not None:
            found.append(
                Thread(None, None, False, head["current"].startswith("Current"), tuple(frames))
            )

    for line in dumped.splitlines():
        if match := _THREAD_LINE.match(line):
            close()
            head, frames = match, []
        elif match := _MAIN_LINE.match(line):
            number = match["line"]
            at = int(number) if number.isdecimal() and len(number) < 10 else 0
            frames.append(Frame(match["name"], match["file"], at))
    close()
    if not found:
        return ()
    main = found.pop()
    return (Thread(pid, "MainThread", main.active, main.owns_gil, main.frames), *found)
