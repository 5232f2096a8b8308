"""Python stacks where py-spy gave none: by pystack, if it is installed, or from a file that
faulthandler wrote in the rank.

Both name functions without the class that they belong to.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from ..facts import Frame, Thread
from .aside import aside, run
from .programs import executable
from .stacks import Stacks, why_not

_PYSTACK_THREAD = re.compile(
    r"Traceback for thread (?P<id>\d{1,18}) (?:\((?P<name>.*)\) )?\[(?P<status>.*)\] \(most recent"
)
# Source lines are indented by eight, so none of them can look like a frame.
_PYSTACK_FRAME = re.compile(
    r' {4}\((?P<kind>Python|C)\) File "(?P<file>.*)", line (?P<line>-?\d{1,9}), in (?P<name>.*)'
)
_DUMPED_FRAME = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)')
_DUMPED_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-fA-F]+")


async def by_pystack(pid: int, limit: float) -> Stacks:
    """Return the stacks of a process as pystack sees them, without a pause, within `limit` seconds.

    Without a sentence where it is not installed: nobody asked for it.
    """
    pystack = executable("pystack")
    if pystack is None:
        return Stacks()
    command = [pystack, "--no-color", "remote", "--no-block", str(pid)]
    try:
        ran = await aside(run, command, limit, limit=limit + 0.3, key=("pystack", pid))
    except TimeoutError:
        return Stacks(missing=f"pystack did not start, or did not end, on {pid}.")
    except OSError as error:
        return Stacks(missing=f"pystack could not be started ({error.strerror or error}).")
    if ran.status is None:
        return Stacks(missing=f"pystack gave no answer on {pid} within {ran.seconds:.1f} s.")
    threads = parse_pystack(ran.out.decode(errors="replace"), pid) if ran.status == 0 else ()
    if threads:
        return Stacks(threads)
    return Stacks(missing=why_not(pid, ran)[1].replace("py-spy", "pystack"))


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
