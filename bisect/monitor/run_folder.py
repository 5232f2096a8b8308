"""The run folder: the only object that knows its paths and writes in it.

Everything is written on the node's own disk first and copied by a helper with a time limit, for
the run folder may lie on the very file system that hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from ..evidence.sample import Stat, stat

COPY_LIMIT = 2.0  # seconds
BUSY_LIMIT = 15.0  # the same for a helper that gets on, if slowly: the machine is busy
MOMENT = 0.5
KILL_LIMIT = 0.2
_COPY = Path(__file__).with_name("copy_run.py")
# Of a helper that had to be left asyncio complains at the end, on the job's stderr ("Unknown child
# process"): whether its own thread or the loop's end reaps it is a race on a busy machine.
logging.getLogger("asyncio").setLevel(logging.ERROR)


class RunFolder:
    """A run's files: set aside and renamed, in `stage` first, then in `path`."""

    def __init__(self, stage: Path, path: Path) -> None:
        """Make `stage`; `path` is made by the first publish()."""
        self.stage = stage
        self.path = path
        self.trouble = ""  # why the last copy failed
        self.is_published = False
        # A helper that gave no answer. In a file system it cannot even be killed: no second one.
        self._stuck: asyncio.subprocess.Process | None = None
        self._events: int | None = None  # events.jsonl, open for appending
        with contextlib.suppress(OSError):
            (stage / "stacks").mkdir(parents=True, exist_ok=True)

    def write(self, name: str, text: str) -> None:
        """Write a whole file, or note that it cannot be."""
        path = self.stage / name
        aside = path.with_name(f".{path.name}.new")
        try:
            aside.write_text(text, encoding="utf-8", errors="replace")
            aside.replace(path)
        except OSError as error:
            self.trouble = f"{name} could not be written: {error.strerror}"

    def write_json(self, name: str, value: Any) -> None:
        """Write a whole JSON file that a person can read."""
        self.write(name, json.dumps(value, indent=2, default=str, ensure_ascii=False) + "\n")

    def note(self, event: dict[str, Any]) -> None:
        """Append an event to events.jsonl, the one file that is appended to."""
        event = {"wall": round(time.time(), 6), **event}
        try:
            if self._events is None:
                events = self.stage / "events.jsonl"
                self._events = os.open(events, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            os.write(self._events, json.dumps(event, default=str).encode() + b"\n")
        except OSError as error:
            self.trouble = f"events.jsonl could not be written: {error.strerror}"

    def events(self) -> list[dict[str, Any]]:
        """Return what events.jsonl holds; a line cut short by a sudden end is left out."""
        try:
            lines = (self.stage / "events.jsonl").read_text(encoding="utf-8").splitlines()
        except OSError:
            return []
        events = []
        for line in lines:
            with contextlib.suppress(ValueError):
                events.append(json.loads(line))
        return events

    async def publish(
        self, limit: float = COPY_LIMIT, first: bool = False, last: bool = False
    ) -> bool:
        """Copy what is new to the run folder; the `first` time, remove an earlier run's files from
        it, for they would be taken for this one's. Return False, and say why in `trouble`, if it
        could not be done within `limit` seconds, or BUSY_LIMIT on a machine that is only busy.

        What failed in that way is not tried again but for the `last` time, when nobody waits.
        """
        self.is_published = False
        if self._stuck is not None and not (last and self._stuck.returncode is not None):
            return False
        helper = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(_COPY), str(self.stage), str(self.path)),
            *(["first"] if first else []),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        said = await _said(helper, limit)
        if said is None:
            self._stuck = helper
            with contextlib.suppress(ProcessLookupError):
                helper.kill()
            with contextlib.suppress(TimeoutError):  # in the kernel it stays, and we do not wait
                await asyncio.wait_for(helper.wait(), KILL_LIMIT)
            self.trouble = f"{self.path} does not answer within {limit:.0f} s"
            return False
        self.trouble = said.decode(errors="replace").strip()
        self.is_published = not self.trouble
        return self.is_published

    def move(self, path: Path) -> None:
        """Publish to another folder from now on."""
        self.path, self.trouble, self._stuck = path, "", None


async def _said(helper: asyncio.subprocess.Process, limit: float) -> bytes | None:
    """Return what a helper printed, None if it neither ended within `limit` seconds nor got on."""
    answer = asyncio.ensure_future(helper.communicate())
    until, pause = time.monotonic() + BUSY_LIMIT, min(MOMENT, limit / 2)
    await asyncio.wait([answer], timeout=limit - pause)
    while not answer.done():
        before = stat(helper.pid)
        await asyncio.wait([answer], timeout=pause)
        if not answer.done() and not (_gets_on(before, stat(helper.pid)) and _before(until)):
            answer.cancel()
            await asyncio.wait([answer])
            return None
    return answer.result()[0]


def _before(moment: float) -> bool:
    return time.monotonic() < moment


def _gets_on(before: Stat | None, now: Stat | None) -> bool:
    if before is None or now is None:
        return False
    return now.state == "R" or now.ticks > before.ticks
