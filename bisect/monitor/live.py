"""The live table, from the monitor's side: what it shows, and the process that draws it.

Ranks wait for the monitor while it is loaded, so what a table needs comes when there is one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..rank.lines import write_within
from .own_command import START_LIMIT, start

if TYPE_CHECKING:
    from ..report.live.now import Now
    from .job import Job

CLOSE_LIMIT = 0.5  # seconds for the table to be taken away before what comes after a verdict
# Some CI systems give a terminal to what they keep as a log, and `!command` in a notebook has one.
_LOGS = ("CI", "JPY_PARENT_PID")


class Live:
    """The table of one job; none where nobody looks, or where nobody wants one."""

    def __init__(self, job: Job) -> None:
        """Nothing is started before the first show()."""
        self._job = job
        self._wanted = is_wanted(job.settings, os.environ)
        self._starting: asyncio.Task[None] | None = None
        self._drawer: subprocess.Popen[bytes] | None = None
        self._told = ""
        self._unsent = b""

    def show(self) -> None:
        """Tell the drawer what is new; start it first. It is never waited for."""
        if not self._wanted or not self._job.members.by_rank:
            return
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        elif self._drawer is not None and self._drawer.poll() is None:
            self._tell(self._drawer)
        elif self._starting.done():
            self._wanted = False
            self._clean_up()

    async def close(self) -> None:
        """Have the table taken away, within CLOSE_LIMIT seconds if its drawer can do it by then."""
        self._wanted = False
        drawer, self._drawer = self._drawer, None
        if drawer is None or drawer.stdin is None:
            return
        drawer.stdin.close()
        until = time.monotonic() + CLOSE_LIMIT
        while drawer.poll() is None and time.monotonic() < until:
            await asyncio.sleep(0.01)

    async def _start(self) -> None:
        from ..evidence.aside import aside

        job = self._job
        ranks, launcher = [m.pid for m in job.members], int(job.place["launcher_pid"])
        asked = {"ranks": ranks, "launcher": launcher}

        def begin() -> None:
            drawer = start(
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
            await aside(begin, limit=START_LIMIT)

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
            from ..report.live.region import lost

            write_within(2, lost().encode(), CLOSE_LIMIT)

    def _now(self) -> Now:
        from ..report.live.now import Now, grouped
        from .ranks_now import rank_now

        job, clock = self._job, time.monotonic()
        is_over = job.verdict is not None or job.is_quiet or all(m.left for m in job.members)
        ranks = (rank_now(job.members, one, job.limits, clock) for one in job.members)
        rows = () if is_over else grouped(ranks)
        return Now(rows, len(job.members.by_rank), job.started, job.limits.stall)


def is_wanted(settings: Mapping[str, object], environ: Mapping[str, str]) -> bool:
    """Return whether a table may be shown: on a terminal, unless something says that it may not.

    NO_COLOR: https://no-color.org. Who reads the lines from a pipe wants lines alone, and a pager
    on the same terminal draws itself: what the ranks print must go to the terminal as well.
    """
    if settings["plain"] or settings["json"] or environ.get("NO_COLOR"):
        return False
    if environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        return False
    if any(environ.get(name) for name in _LOGS):
        return False
    return bool(settings.get("on_terminal")) and os.isatty(2)
