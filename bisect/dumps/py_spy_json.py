"""What `py-spy dump --json` prints: the threads of one process, and nothing of the process."""

from __future__ import annotations

import json
from typing import Any

from ..evidence.stacks import parse
from ..facts import Thread
from .blocked import blocked
from .dumped import Contents, Dumped, Unreadable


def is_one(data: Any) -> bool:
    """Return whether `data` has the form of a dump."""
    return (
        isinstance(data, list)
        and bool(data)
        and all(isinstance(one, dict) and "frames" in one for one in data)
    )


def of(data: Any, file: str) -> Contents:
    """Return the process that a dump shows."""
    pid = next((one["pid"] for one in data if type(one.get("pid")) is int), None)
    threads = parse(json.dumps(data), pid or 0)
    if pid is None:
        pid = _main(threads)
    if not any(thread.frames for thread in threads):
        return Contents(unreadable=(Unreadable(file, None, "a py-spy dump without a frame"),))
    ordered = sorted(threads, key=lambda thread: thread.os_id != pid)
    call = "" if ordered[0].active else blocked(ordered[0].frames)
    return Contents((Dumped("py-spy", tuple(ordered), file, 1, pid, call=call),))


def _main(threads: tuple[Thread, ...]) -> int | None:
    named = next((t.os_id for t in threads if t.name == "MainThread"), None)
    return named or min((t.os_id for t in threads if t.os_id), default=None)
