"""Whole jobs for the tests that watch one: each in a folder of its own."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import jobs
import psutil

DEADLINE = 150.0  # seconds for a job, or for something in it, on a busy machine
# For what computes with torch and is started by no launcher: torchrun sets it for its ranks.
# Threads of OpenMP spin while they wait for each other: half of a training on a busy machine.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


class Job:
    """A job of ours that was started."""

    def __init__(self, running: jobs.Running, folder: Path) -> None:
        self.running = running
        self.folder = folder
        self._ended: jobs.Ended | None = None

    def end(self, limit: float = DEADLINE, rest: float = 30.0) -> jobs.Ended:
        """Return how it ended; it is ended by force once `limit` seconds are over. What it started
        has `rest` seconds to end after it: what watches it writes its verdict then.
        """
        if self._ended is None:
            self._ended = self.running.end(limit, rest)
        return self._ended

    def said(self) -> str:
        """Return all that it has printed so far, on both streams."""
        return self.running.said()

    def until(self, *texts: str) -> str:
        """Wait until it has printed all of `texts`; return what it has printed."""
        end = time.monotonic() + DEADLINE
        while True:
            ended = self.running.process.poll() is not None  # asked first: its last words count
            said = self.said()
            if all(text in said for text in texts):
                return said
            assert not ended, self.end()
            assert time.monotonic() < end, f"{texts} not in:\n{said}"
            time.sleep(0.05)

    def monitor(self) -> psutil.Process:
        """Return the process that watches."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                if _is_monitor(process):
                    return process
        raise AssertionError("no monitor")

    def rank(self, rank: int) -> psutil.Process:
        """Return a rank's own process: of all that have its number the one that came first."""
        own = []
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):  # a helper of a moment
                if process.environ().get("RANK") == str(rank) and not _is_monitor(process):
                    own.append(process)
        return min(own, key=lambda process: (process.create_time(), process.pid))

    def _processes(self) -> list[psutil.Process]:
        found = []
        for pid in self.running.marked():
            with suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(pid))
        return found


def _is_monitor(process: psutil.Process) -> bool:
    return "monitor" in process.cmdline()


# To our processes it is torchrun, but it imports no torch: four seconds of a core less.
LIGHT = Path(__file__).with_name("light") / "torchrun"
_LIGHT_PROGRAM = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
"""


def write_launcher(folder: Path, ranks: int = 2) -> str:
    """Write a program `torchrun` that starts so many ranks by LIGHT into a folder, and return its
    path: what follows it in a command are options, which it leaves out, and Python's arguments.
    """
    launcher = folder / "torchrun"
    words = shlex.join([sys.executable, str(LIGHT), str(ranks), sys.executable])
    launcher.write_text(f'{_LIGHT_PROGRAM}exec {words} "$@"\n')
    launcher.chmod(0o755)
    return str(launcher)


class Jobs:
    """Starts jobs of the installed package, and ends them; `light` without torchrun itself."""

    def __init__(self, light: bool = False) -> None:
        self._light = light
        self._started: list[Job] = []
        self._folders: list[Path] = []

    def folder(self) -> Path:
        """Make a folder for a job that needs something in it."""
        # Not pytest's: its long name would not do for a socket.
        self._folders.append(Path(tempfile.mkdtemp(prefix="job-")))
        return self._folders[-1]

    def start(self, *arguments: str, folder: Path | None = None, **how: Any) -> Job:
        """Start a job; `how` is for jobs.start."""
        folder = folder or self.folder()
        how.setdefault("way", jobs.INSTALLED)
        if self._light and (ranks := how.get("ranks", 2)):
            how.setdefault("launcher", [sys.executable, str(LIGHT), str(ranks), sys.executable])
        self._started.append(Job(jobs.start(arguments, folder, **how), folder))
        return self._started[-1]

    def add(self, running: jobs.Running, folder: Path) -> Job:
        """Take care of a job that was started in another way, in a folder of ours."""
        self._started.append(Job(running, folder))
        return self._started[-1]

    def run(self, *arguments: str, **how: Any) -> jobs.Ended:
        """Start a job and wait for its end."""
        return self.start(*arguments, **how).end()

    def end(self) -> None:
        """End all of them, and remove their folders."""
        for job in self._started:
            job.end(limit=0.0)
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
