"""Which task of an event loop awaits what: the stack of a loop that waits shows only the loop.

From 3.14 on Python reads the tasks of another process: `python -m asyncio pstree PID` (asyncio's
own tool, Lib/asyncio/tools.py), by its memory, without a pause, and as far as py-spy may. It must
be the same Python, so the job's own interpreter is started: with -I and -S, which leave out
whatever the job's environment would run in it. For another user's job only the system's own is.

What it prints, each level four columns further to the right (3.14.10):

    └── (T) Task-1
        └──  main /home/ada/serve.py:9
            ├── (T) load shards
            │   └──  fetch /home/ada/serve.py:3

Tasks that await one another it does not draw: it ends with status 1, and writes "cycle: a → b → a".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from ..base.deadline import call_with_limit, run_command
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import AsyncTask, Frame, Thread
from .process import uid_of

LIMIT = 2.0  # seconds; it takes 0.3 s of a core, most of them to start
_FIRST_VERSION = 14  # of Python 3
_LOOP_FILE = re.compile(r"/python3\.(?P<minor>\d{1,3})/asyncio/(?:base_events|runners)\.py$")
_LINE = re.compile(r"(?P<before>(?:[ │] {3})*)(?:└──|├──) (?:\(T\) (?P<task>.*)| (?P<frame>.*))")
_FRAME = re.compile(r"(?P<name>\S+) (?P<file>.+):(?P<line>\d{1,9})")
_CYCLE = re.compile(r"^cycle: (.+)$", re.MULTILINE)
_MOST_TASKS = 200


@dataclass(frozen=True)
class LoopTasks:
    """The tasks of a process's event loops; `missing`: why they are not known."""

    tasks: tuple[AsyncTask, ...] = ()
    ring: tuple[
        str, ...
    ] = ()  # the names of tasks that await one another, the first one again last
    missing: str = ""


def runs_readable_loop(threads: Iterable[Thread]) -> bool:
    """Return whether a thread runs an event loop of a Python whose tasks can be read."""
    files = (frame.file for thread in threads for frame in thread.frames)
    found = (_LOOP_FILE.search(file) for file in files)
    return any(match is not None and int(match["minor"]) >= _FIRST_VERSION for match in found)


async def read_loop_tasks(pid: int, limit: float = LIMIT) -> LoopTasks:
    """Return the tasks of a process that runs an event loop of Python 3.14 or later, within `limit`
    seconds.
    """
    python, why_not = _find_interpreter(pid)
    if why_not:
        return LoopTasks(missing=f"The tasks of {pid} were not read: {why_not}.")
    command = [python, "-I", "-S", "-m", "asyncio", "pstree", str(pid)]
    try:
        ran = await call_with_limit(
            run_command, command, limit, limit=limit + 0.3, key=("asyncio", pid)
        )
    except (TimeoutError, OSError) as error:
        return LoopTasks(missing=f"The tasks of {pid} were not read: {error or 'no answer'}.")
    printed = ran.out.decode(errors="replace")
    if ran.status == 0:
        return LoopTasks(parse_task_tree(printed))
    ring = parse_task_ring(ran.err)
    if ring:
        return LoopTasks(ring=ring)
    lines = f"{printed}\n{ran.err}".splitlines()
    first = next((line for line in lines if line.strip()), "no answer in time")
    return LoopTasks(missing=f"The tasks of {pid} were not read ({first.strip()[:200]}).")


def _find_interpreter(pid: int) -> tuple[str, str]:
    """Return the path of a process's interpreter, or "" and why it is not to be started."""
    try:
        path = os.readlink(f"/proc/{pid}/exe")
        if os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"):
            return "", "it runs in a container"
        about = os.stat(path)
    except OSError as error:
        return "", f"its interpreter is not to be had ({error.strerror or error})"
    # What another user may change is not to be run with our rights.
    if uid_of(pid) == os.geteuid() or (about.st_uid == 0 and not about.st_mode & 0o022):
        return path, ""
    return "", f"others than this user may change its interpreter {path}"


def parse_task_tree(printed: str) -> tuple[AsyncTask, ...]:
    """Return the tasks in what `python -m asyncio pstree` printed, in its order; what is no such
    line is left out.
    """
    found: list[_Task] = []
    above: list[_Task] = []  # the task that each level belongs to
    for line in printed.splitlines():
        match = _LINE.fullmatch(line)
        depth = len(match["before"]) // 4 if match is not None else 0
        if match is None or depth > len(above) or len(found) >= _MOST_TASKS:
            continue
        del above[depth:]
        if match["task"] is not None:
            one = _Task(match["task"])
            found.append(one)
            if above:
                above[-1].awaits.append(one.name)
        elif above:
            one = above[-1]
            one.frames.append(_parse_frame(match["frame"]))
        else:
            continue
        above.append(one)
    return tuple(AsyncTask(t.name, tuple(reversed(t.frames)), tuple(t.awaits)) for t in found)


class _Task:
    """A task that is being read: `frames` outermost first."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.frames: list[Frame] = []
        self.awaits: list[str] = []


def _parse_frame(text: str) -> Frame:
    match = _FRAME.fullmatch(text.strip())
    if match is None:
        return Frame(text.strip(), "", 0)
    return Frame(match["name"], match["file"], int(match["line"]))


def parse_task_ring(said: str) -> tuple[str, ...]:
    """Return the tasks of the first ring that the tool names, () if it names none."""
    match = _CYCLE.search(said)
    names: Sequence[str] = match[1].split(" → ") if match is not None else ()
    return tuple(name.strip() for name in names)
