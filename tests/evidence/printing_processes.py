"""Processes that print what NCCL and its watchdog print, to files, and then stay."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

# Its own process is $PID in the lines, and its host $HOST, as NCCL writes them.
_PROGRAM = """
import os, socket, sys, time
def fill(text):
    host = socket.gethostname().partition(".")[0]
    return text.replace("$PID", str(os.getpid())).replace("$HOST", host)
name = os.environ.get("NCCL_DEBUG_FILE", "")
if name:
    host, pid = socket.gethostname().partition(".")[0], str(os.getpid())
    kept = open(name.replace("%h", host).replace("%p", pid), "w")
    kept.write(fill(sys.argv[2]))
    kept.flush()
sys.stdout.write(fill(sys.argv[1]))
sys.stdout.flush()
open(sys.argv[3], "w").close()
time.sleep(600)
"""


class Printers:
    """The processes of one test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        lines: Sequence[str],
        to: Path | int,
        of_nccl: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Return the pid of a process that has printed `lines` to a file, or to a descriptor, and
        `of_nccl` to the file that NCCL_DEBUG_FILE of `environment` names.
        """
        there = self._folder / f"printed-{len(self._started)}"
        texts = ("".join(f"{line}\n" for line in some) for some in (lines, of_nccl))
        output = os.open(to, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if isinstance(to, Path) else to
        self._started.append(
            subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, *texts, str(there)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                env=os.environ | dict(environment or {}),
            )
        )
        if isinstance(to, Path):
            os.close(output)
        wait_for(there)
        return self._started[-1].pid

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


def wait_for(path: Path, limit: float = 60.0) -> None:
    """Return once a file is there."""
    end = time.monotonic() + limit
    while not path.exists():
        assert time.monotonic() < end, f"{path} has not come"
        time.sleep(0.01)


@contextmanager
def printers(folder: Path) -> Iterator[Printers]:
    """Return something that starts such processes, and ends them at the end."""
    found = Printers(folder)
    try:
        yield found
    finally:
        found.end()
