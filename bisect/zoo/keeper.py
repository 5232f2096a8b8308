"""Ends a case's job and removes its folder, whatever becomes of the program that runs the case.

Started by its path, in front of everything else: python -I -S keeper.py NAME=VALUE FOLDER. Every
process of the job has NAME=VALUE in its environment. Commands are lines on the standard input:
`left SECONDS` waits so long for the job's processes to go and answers with the command lines of
those that did not, as JSON; those in the kernel are for `stuck SECONDS`, which is asked once the
case's world is undone and what they wait for is back; `end` ends them by SIGKILL. The end of the
input, which also comes when the other side is killed, means: end them, remove the folder, and go.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator

END_LIMIT = 5.0  # seconds for killed processes to go; one in the kernel (state D) may not


def main(mark: str, folder: str) -> None:
    """Serve until the input ends."""
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "end":
            end(mark)
            print("[]", flush=True)
        elif word in ("left", "stuck"):
            print(json.dumps(left(mark, float(rest), stuck=word == "stuck")), flush=True)
    end(mark)
    shutil.rmtree(folder, ignore_errors=True)


def end(mark: str) -> None:
    """SIGKILL every process of the job until none is left, or the time for it is over."""
    until = time.monotonic() + END_LIMIT
    while time.monotonic() < until:
        found = [*find_marked(mark)]
        if not found:
            return
        for pid in found:
            _kill_marked(pid, mark)
        time.sleep(0.05)


def left(mark: str, seconds: float, stuck: bool = False) -> list[str]:
    """Return the command lines of the job's processes that are there after so many seconds: of
    those that are `stuck` in the kernel (state D), or of the others.
    """
    until = time.monotonic() + seconds
    while (found := [p for p in find_marked(mark) if _in_the_kernel(p) == stuck]) and (
        time.monotonic() < until
    ):
        time.sleep(0.1)
    return [
        _read_file(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace") for pid in found
    ]


def _kill_marked(pid: int, mark: str) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            if _has(pid, mark):  # still the same process: it was, after its pidfd was there
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


def find_marked(mark: str) -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit() and _has(int(name), mark))


def _has(pid: int, mark: str) -> bool:
    return mark.encode() in _read_file(pid, "environ").split(b"\0")


def _read_file(pid: int, what: str) -> bytes:
    """Return a file of /proc/PID; b"" after half a second, for a process in state D may hold the
    lock of its memory, and reading would wait with it.
    """
    read: list[bytes] = []

    def aside() -> None:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/{what}", "rb") as file:
            read.append(file.read())

    if not _in_the_kernel(pid):
        aside()
    else:
        thread = threading.Thread(target=aside, daemon=True)
        thread.start()
        thread.join(0.5)
    return read[0] if read else b""


def _in_the_kernel(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] == "D"
    except (OSError, IndexError):
        return False


if __name__ == "__main__":
    main(*sys.argv[1:])
