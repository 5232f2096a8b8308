"""One launch in the care of `hangbisect run`: started, followed while it runs, and how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..monitor.ending import Family, lives, monitors
from ..monitor.heard import Heard, HeardRank
from ..monitor.outer_link import OUTER_VARIABLE, STARTER_VARIABLE
from ..monitor.reports import LATER, REPORTS_VARIABLE
from ..rank.watch_options import variable_of
from .run_files import read_verdict

OUTPUT = "output.txt"  # in the run folder: what the launch printed
STOP_LIMIT = 30.0  # seconds for `hangbisect run` to end everything
JUST_FORKED = 0.3  # seconds for a child to run its program: only then has it the mark
BEYOND = 90.0  # seconds after its own time limit, for looks, files and the end of it all
MONITORS_LIMIT = 10.0  # seconds for monitors to write and leave, once their ranks have ended
_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Launch:
    """What is to be launched. `command` has its launcher in it."""

    command: tuple[str, ...]
    run_dir: Path  # made; verdict.json, output.txt and all else are written there
    environment: Mapping[str, str] = field(default_factory=dict)  # set beside our own
    watch: Mapping[str, str] = field(default_factory=dict)  # {"stall": "10", "on-hang": "end"}
    limit: float | None = None  # seconds; then it is ended: slow if it moved, else hung
    folder: Path | None = None  # where it is started, ours if None


@dataclass(frozen=True)
class RankAt:
    """Where a rank is, for a live table."""

    rank: int
    checkpoint: int | None  # the one that it works towards; None in a script of the user's own
    title: str
    phase: str | None
    since: float  # monotonic
    waits: bool = False  # at our barrier


@dataclass(frozen=True)
class Ended:
    """How a launch ended."""

    status: int | None  # exit status of `hangbisect run`; None: it was killed from outside
    seconds: float
    verdict: Mapping[str, Any] | None  # verdict.json; None: there is none
    trouble: str = ""  # a sentence where it could not be started, or nobody could judge it


class Launched:
    """A launch under way."""

    def __init__(self, launch: Launch) -> None:
        """Start it. Raises OSError if `hangbisect run` itself cannot be started, or if there is no
        place for its run folder.
        """
        self.launch = launch
        self.began = time.monotonic()
        self._heard, self._lock = Heard(), threading.Lock()
        self._mark = ""
        self._ended: Ended | None = None
        launch.run_dir.mkdir(parents=True, exist_ok=True)
        self._link, theirs = socket.socketpair()
        with theirs, open(launch.run_dir / OUTPUT, "wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(_PACKAGE), "run", "--", *launch.command],
                cwd=launch.folder,
                env={**os.environ, **launch.environment, **self._options(theirs.fileno())},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ranks(self) -> list[RankAt]:
        """Return where each rank is now, as far as it has spoken, by rank."""
        with self._lock:
            heard = self._heard
            return [
                RankAt(
                    rank=one.rank,
                    checkpoint=one.step if one.doing is None else None,
                    title=_doing(one, heard),
                    phase=one.phase,
                    since=one.since,
                    waits=one.held is not None,
                )
                for one in sorted(heard.ranks.values(), key=lambda one: one.rank)
            ]

    def wait(self, limit: float | None = None) -> Ended | None:
        """Return how it ended; None if it is still under way after `limit` seconds."""
        if self._ended is not None:
            return self._ended
        allowed = self.launch.limit
        until = None if allowed is None else self.began + allowed + BEYOND
        if until is not None and time.monotonic() > until:
            return self.stop()
        try:
            status = self._process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        return self._end(status)

    def stop(self) -> Ended:
        """End it with all that belongs to it, and return how it ended.

        What cannot be ended is left behind, and said.
        """
        if self._ended is not None:
            return self._ended
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)
        try:
            status = self._process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            family = Family("")
            family.add_rank(self._process.pid)
            family.end()
            try:
                status = self._process.wait(STOP_LIMIT)
            except subprocess.TimeoutExpired:
                return self._leave()
        return self._end(status)

    def _options(self, starter: int) -> dict[str, str]:
        """Return the variables that the watch reads its options from."""
        wanted = {**self.launch.watch, "run-dir": str(self.launch.run_dir.resolve())}
        if self.launch.limit is not None:
            wanted["limit"] = str(self.launch.limit)
        variables = {variable_of(name): value for name, value in wanted.items()}
        return {**variables, STARTER_VARIABLE: str(starter), REPORTS_VARIABLE: LATER}

    def _read(self) -> None:
        with self._link.makefile("rb") as lines:
            for line in lines:
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    message = json.loads(line)
                    with self._lock:
                        self._mark = message.get("mark", self._mark)
                        self._heard.take(message)

    def _end(self, status: int) -> Ended:
        self._reader.join(1.0)
        self._link.close()
        trouble = ""
        if status < 0:
            trouble = f"`hangbisect run` was killed from outside (signal {-status})"
            self._end_orphans()
        verdict = read_verdict(self.launch.run_dir)
        unspoken = verdict is None or (verdict["outcome"] == "crash" and not verdict["where"])
        if unspoken and not trouble:
            trouble = self._last_words()
        seconds = time.monotonic() - self.began
        self._ended = Ended(status if status >= 0 else None, seconds, verdict, trouble)
        return self._ended

    def _leave(self) -> Ended:
        self._reader.join(1.0)
        self._link.close()
        seconds = time.monotonic() - self.began
        trouble = f"`hangbisect run` (pid {self._process.pid}) could not be ended, and is left"
        self._ended = Ended(None, seconds, read_verdict(self.launch.run_dir), trouble)
        return self._ended

    def _end_orphans(self) -> None:
        """End what `hangbisect run` would have ended, and remove its socket's folder."""
        if not self._mark:
            return
        time.sleep(JUST_FORKED)
        family = Family(self._mark, OUTER_VARIABLE)
        # Monitors find their ranks gone, write what they know, and take their own folders away.
        left = family.spared = self._heard.monitors | monitors(OUTER_VARIABLE, self._mark)
        family.end_for_good()
        until = time.monotonic() + MONITORS_LIMIT
        while any(map(lives, left)) and time.monotonic() < until:
            time.sleep(0.05)
        family.spared = set()
        family.end_for_good()
        shutil.rmtree(os.path.dirname(self._mark), ignore_errors=True)

    def _last_words(self) -> str:
        """Return the last line that was printed, for a launch that nobody judged."""
        try:
            text = (self.launch.run_dir / OUTPUT).read_text(errors="replace")
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        ours = [line for line in lines if line.startswith("hangbisect: ")]
        return (ours or lines or [""])[-1].removeprefix("hangbisect: ")[:300]


def run(launch: Launch, stopping: threading.Event | None = None) -> Ended:
    """Launch and wait for the end; once `stopping` is set, end it."""
    launched = Launched(launch)
    try:
        while (ended := launched.wait(0.2)) is None:
            if stopping is not None and stopping.is_set():
                return launched.stop()
    except BaseException:
        launched.stop()
        raise
    return ended


def _doing(one: HeardRank, heard: Heard) -> str:
    if one.doing is None:
        return heard.titles.get(one.step, "")
    return one.doing[-1] if one.doing else ""
