"""Python stacks of another process, by py-spy."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from ..facts import Frame, Thread
from . import frame_locals
from .aside import Ran, aside, run
from .programs import executable
from .sample import stat

_SHARE_WITH_LOCALS = 0.6  # of the time: the rest is for a look without, should they not come


@dataclass(frozen=True)
class Stacks:
    """Python's threads, the main one first; empty with a sentence that says why."""

    threads: tuple[Thread, ...] = ()
    missing: str = ""
    hopeless: bool = False  # nothing else will read this process from outside either


async def look(
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
    `native`) adds those of `frame_locals.TABLE`; where that does not work, the stacks come without.
    """
    if native or not with_locals:
        return await _look(pid, "--native" if native else "--nonblocking", limit, resume)
    begun = time.monotonic()
    seen = await _look(pid, "--nonblocking", limit * _SHARE_WITH_LOCALS, resume, locals_too=True)
    left = limit - (time.monotonic() - begun)
    if seen.threads or seen.hopeless or left < 0.1:
        return seen
    plain = await _look(pid, "--nonblocking", left, resume)
    if plain.threads:
        return replace(plain, missing=f"{seen.missing} Without locals it did.")
    return plain


async def _look(
    pid: int,
    how: str,
    limit: float,
    resume: Callable[[int], object] | None,
    locals_too: bool = False,
) -> Stacks:
    spy = executable()
    if spy is None:
        return Stacks(missing="py-spy is not installed: no Python stacks.")
    stopped_before = is_stopped(pid)
    command = [spy, "dump", "--json", "--pid", str(pid), how]
    # Asked for twice it shows more of a long text: 380 characters, not 128.
    command += ["--locals", "--locals"] if locals_too else []
    try:
        # run() kills after its limit; the second limit is for a start that hangs.
        ran = await aside(run, command, limit, limit=limit + 0.3, key=("py-spy", pid))
    except TimeoutError:
        return Stacks(missing=f"py-spy did not start, or did not end, on {pid}.")
    except OSError as error:
        return Stacks(missing=f"py-spy could not be started ({error.strerror or error}).")
    if ran.status is None:
        sentence = _cut_off(pid, ran.seconds, stopped_before, resume)
        return Stacks(missing=sentence)
    if ran.status != 0:
        hopeless, sentence = why_not(pid, ran)
        return Stacks(missing=sentence, hopeless=hopeless)
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


def why_not(pid: int, ran: Ran) -> tuple[bool, str]:
    """Return why py-spy failed: whether other programs would fail too, and a sentence."""
    if stat(pid) is None:
        return True, f"{pid} is gone."
    text = ran.err.lower()
    if "permission denied" in text or "operation not permitted" in text:
        return True, f"py-spy may not read {pid} (no permission)."
    if "python version" in text or "python interpreter" in text:
        return True, f"{pid} is not running Python, or not yet."
    first = next((line for line in ran.err.splitlines() if line.strip()), "no message")
    return False, f"py-spy failed on {pid}: {first.removeprefix('Error: ').strip()}"


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
    frame = Frame(
        name=str(data.get("name") or "?"),
        file=str(data.get("filename") or ""),
        line=line if type(line) is int else 0,
        # Only frames of C, C++ and Cython name the library that they are in.
        native=data.get("module") is not None,
    )
    found = frame_locals.kept(frame, _locals(data.get("locals")))
    return replace(frame, locals=found) if found else frame


def _locals(data: object) -> list[tuple[str, str]]:
    if not isinstance(data, list):
        return []
    pairs = [(one.get("name"), one.get("repr")) for one in data if isinstance(one, dict)]
    return [(n, value) for n, value in pairs if isinstance(n, str) and isinstance(value, str)]


def text(pid: int, command: Iterable[str], threads: Iterable[Thread]) -> str:
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
            lines.append(f"    {frame_text(frame)}")
            lines += [f"        {name} = {value}" for name, value in frame.locals]
    if not lines:
        return ""
    return "\n".join([f"Process {pid}: {' '.join(command)}".rstrip(": "), "", *lines, ""])


def frame_text(frame: Frame) -> str:
    """Return "name (file.py:12)"; the file without its folders, as py-spy shortens it."""
    where = os.path.basename(frame.file)
    return f"{frame.name} ({where}:{frame.line})" if frame.line else f"{frame.name} ({where})"
