"""The reports of a verdict (report.md, report.html, trace.json), made by a process of its own: the
run folder may lie on a disk that hangs, and nobody waits for a page.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Mapping

from .own_command import START_LIMIT, start

# "later": who started this job, and others, makes the reports of all of them at the end.
REPORTS_VARIABLE = "HANGBISECT_REPORTS"
LATER = "later"
REPORT = "report.md"  # the one that a verdict names
LIMIT = 120.0  # seconds for the reports of one run folder: of 1,024 ranks they take 20 s of a core
KILL_LIMIT = 0.2  # seconds


class Reports:
    """The reports of one job's verdict; of the last one, where one was taken back."""

    def __init__(self) -> None:
        """Nothing is started before begin()."""
        self._making: asyncio.Task[None] | None = None
        self.were_made = False  # or begun, of a verdict before this one

    def begin(self, folder: str) -> None:
        """Have them made of a run folder. Does not wait."""
        self._stop()
        if is_wanted(os.environ):
            self.were_made = True
            self._making = asyncio.create_task(make_reports(folder))

    async def finish(self) -> None:
        """Wait until they are made, or their time is over."""
        if self._making is not None:
            await asyncio.wait([self._making])

    def _stop(self) -> None:
        if self._making is not None:
            self._making.cancel()
            self._making = None


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Return whether the reports of a run are made at its end."""
    return environ.get(REPORTS_VARIABLE, "") != LATER


async def make_reports(folder: str, trials: bool = False, limit: float = LIMIT) -> None:
    """Have the reports made of a run folder, of its starts as well if there are `trials`; return
    when they are there, or could not be made within `limit` seconds. The process ends in any case.
    """
    from ..evidence.aside import aside

    started: list[subprocess.Popen[bytes]] = []
    asked = {"folder": folder, "trials": trials, "limit": limit}

    def begin() -> None:
        started.append(
            start(
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
            await aside(begin, limit=START_LIMIT)
        until = asyncio.get_running_loop().time() + limit
        while started and started[0].poll() is None:
            if asyncio.get_running_loop().time() > until:
                break
            await asyncio.sleep(0.05)
    finally:
        if started and started[0].poll() is None:
            started[0].kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # in the kernel it stays
                started[0].wait(KILL_LIMIT)


def make_now(folder: str, trials: bool = False) -> None:
    """Do the same without an event loop, and only if reports are wanted: blocks until then."""
    if is_wanted(os.environ):
        asyncio.run(make_reports(folder, trials, LIMIT * 2 if trials else LIMIT))
