"""The processes that a monitor starts beside itself to run an internal command of ours: one draws
the live table, one makes the reports of a verdict (report.md, report.html, trace.json).

Ranks wait for the monitor while it is loaded, so what a table needs comes when there is one
(live_rows.py). Reports have a process of their own since the run folder may lie on a disk that
hangs, and no process waits for a page.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..rank.lines import write_within
from .watcher_link import OUTER_VARIABLE

if TYPE_CHECKING:
    from ..report.live_table import RankTable
    from .job import Job


START_LIMIT = 5.0  # seconds for a disk to give the program
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def start_own_command(
    command: str, asked: dict[str, Any], **of_popen: Any
) -> subprocess.Popen[bytes]:
    """Start `hangbisect COMMAND` with what it is asked, as JSON. It may wait for the disk.

    Raises OSError if it cannot be started.
    """
    argument = json.dumps({"path": sys.path, **asked})
    # Without the mark of what the outer process ends, and waits for.
    environ = {name: value for name, value in os.environ.items() if name != OUTER_VARIABLE}
    words = [sys.executable, "-I", "-S", _PACKAGE, command, argument]
    return subprocess.Popen(words, env=environ, **of_popen)


TABLE_CLOSE_LIMIT = 0.5  # seconds for the table to be taken away before what comes after a verdict
# Some CI systems give a terminal to what they keep as a log, and `!command` in a notebook has one.
_VARIABLES_OF_LOGS = ("CI", "JPY_PARENT_PID")


class LiveTable:
    """The table of one job; none without a terminal, or where none is wanted."""

    def __init__(self, job: Job) -> None:
        """Nothing is started before the first show()."""
        self._job = job
        self._wanted = is_table_wanted(job.settings, os.environ)
        self._starting: asyncio.Task[None] | None = None
        self._drawer: subprocess.Popen[bytes] | None = None
        self._told = ""
        self._unsent = b""
        self._said_where = False  # that another node shows one of all ranks

    @property
    def is_shown(self) -> bool:
        """Return whether somebody draws it, as far as is known."""
        return self._wanted and self._drawer is not None and self._drawer.poll() is None

    def show(self) -> None:
        """Tell the drawer what is new; start it first. It is never waited for."""
        if not self._wanted or not self._job.members.by_rank:
            return
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        elif self._drawer is not None and self.is_shown:
            self._tell(self._drawer)
        elif self._starting.done():
            self._wanted = False
            self._clean_up()

    async def close(self) -> None:
        """Have the table taken away; wait TABLE_CLOSE_LIMIT seconds at most for its drawer."""
        self._wanted = False
        drawer, self._drawer = self._drawer, None
        if drawer is None or drawer.stdin is None:
            return
        drawer.stdin.close()
        until = time.monotonic() + TABLE_CLOSE_LIMIT
        while drawer.poll() is None and time.monotonic() < until:
            await asyncio.sleep(0.01)

    async def _start(self) -> None:
        from ..base.deadline import call_with_limit

        job = self._job
        ranks, launcher = [m.pid for m in job.members], int(job.place["launcher_pid"])
        asked = {"ranks": ranks, "launcher": launcher}

        def begin() -> None:
            drawer = start_own_command(
                "live_table",
                asked,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
            )
            assert drawer.stdin is not None
            os.set_blocking(drawer.stdin.fileno(), False)
            self._drawer = drawer
            if not self._wanted:  # it was closed meanwhile
                drawer.stdin.close()

        with contextlib.suppress(OSError, TimeoutError):
            await call_with_limit(begin, limit=START_LIMIT)

    def _tell(self, drawer: subprocess.Popen[bytes]) -> None:
        assert drawer.stdin is not None
        now = self._now().as_json()
        if now != self._told and not self._unsent:
            self._told, self._unsent = now, now.encode() + b"\n"
        with contextlib.suppress(OSError):  # it has not read so far, or is gone
            while self._unsent:
                written = os.write(drawer.stdin.fileno(), self._unsent)
                self._unsent = self._unsent[written:]

    def _clean_up(self) -> None:
        """A drawer that was killed has left its table, and the margins, behind."""
        if self._drawer is not None and self._drawer.returncode:
            from ..report.live_table import clear_lost_table

            write_within(2, clear_lost_table().encode(), TABLE_CLOSE_LIMIT)

    def _now(self) -> RankTable:
        from ..report.live_table import RankTable, group_ranks
        from .live_rows import locate_ranks, take_rows

        job, nodes = self._job, self._job.nodes
        ranks = [*locate_ranks(job, time.monotonic())]
        others = nodes.list_rows() if nodes is not None and ranks else []
        for _, at, rows in others:
            ranks += take_rows(rows, at)
        hosts = len({str(job.place["host"]), *(host for host, _, _ in others)})
        if nodes is not None and nodes.table_host and ranks:
            if not self._said_where:
                job.say(f"The table of all ranks is on {nodes.table_host}")
            self._said_where, ranks = True, []
        count = len(ranks) or len(job.members.by_rank)
        return RankTable(group_ranks(ranks), count, job.started, job.limits.stall, hosts)


def is_table_wanted(settings: Mapping[str, object], environ: Mapping[str, str]) -> bool:
    """Return whether a table may be shown: on a terminal, unless something says that it may not.

    NO_COLOR: https://no-color.org. Who reads the lines from a pipe wants lines alone, and a pager
    on the same terminal draws itself: what the ranks print must go to the terminal as well.
    """
    if settings["plain"] or settings["json"] or environ.get("NO_COLOR"):
        return False
    if environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        return False
    if any(environ.get(name) for name in _VARIABLES_OF_LOGS):
        return False
    return bool(settings.get("on_terminal")) and os.isatty(2)


# "later": the process that started this job, and others, makes the reports of all at the end.
REPORTS_VARIABLE = "HANGBISECT_REPORTS"
REPORTS_LATER = "later"
REPORT_FILE = "report.md"  # the one that a verdict names
# Seconds for the reports of one run folder: of 1,024 ranks they take 20 s of a core.
REPORTS_LIMIT = 120.0
REPORTS_KILL_LIMIT = 0.2  # seconds


class Reports:
    """The reports of one job's verdict; of the last one, where one was taken back."""

    def __init__(self) -> None:
        """Nothing is started before begin()."""
        self._making: asyncio.Task[None] | None = None
        self.were_made = False  # or begun, of a verdict before this one

    def begin(self, folder: str) -> None:
        """Have them made of a run folder, if there is one. Does not wait."""
        self._stop()
        if folder and are_reports_wanted(os.environ):
            self.were_made = True
            self._making = asyncio.create_task(start_report_maker(folder))

    async def finish(self) -> None:
        """Wait until they are made, or their time is over."""
        if self._making is not None:
            await asyncio.wait([self._making])

    def _stop(self) -> None:
        if self._making is not None:
            self._making.cancel()
            self._making = None


def are_reports_wanted(environ: Mapping[str, str]) -> bool:
    """Return whether the reports of a run are made at its end."""
    return environ.get(REPORTS_VARIABLE, "") != REPORTS_LATER


async def start_report_maker(
    folder: str, trials: bool = False, limit: float = REPORTS_LIMIT
) -> None:
    """Have the reports made of a run folder, of its starts as well if there are `trials`; return
    when they are there, or could not be made within `limit` seconds. The process ends in any case.
    """
    from ..base.deadline import call_with_limit

    started: list[subprocess.Popen[bytes]] = []
    asked = {"folder": folder, "trials": trials, "limit": limit}

    def begin() -> None:
        started.append(
            start_own_command(
                "make_reports",
                asked,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C on the terminal is not for it
            )
        )

    try:
        with contextlib.suppress(OSError, TimeoutError):
            await call_with_limit(begin, limit=START_LIMIT)
        until = asyncio.get_running_loop().time() + limit
        while started and started[0].poll() is None:
            if asyncio.get_running_loop().time() > until:
                break
            await asyncio.sleep(0.05)
    finally:
        if started and started[0].poll() is None:
            started[0].kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # in the kernel it stays
                started[0].wait(REPORTS_KILL_LIMIT)


def make_reports_now(folder: str, trials: bool = False) -> None:
    """Do the same without an event loop, and only if reports are wanted: blocks until then."""
    if are_reports_wanted(os.environ):
        asyncio.run(
            start_report_maker(folder, trials, REPORTS_LIMIT * 2 if trials else REPORTS_LIMIT)
        )
