"""The ids of threads in a container, as they are seen from outside.

A process in a pid namespace of its own knows its threads by other ids than we do, and py-spy and
pystack print those: there the main thread is 1, or whatever the process is in its namespace.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from ..facts import Thread


def as_seen(pid: int, threads: tuple[Thread, ...]) -> tuple[Thread, ...]:
    """Return the threads of a process with their ids as /proc here has them, the main one first.
    They are as they were where the process has the ids that we see.
    """
    ids = seen_ids(pid)
    if not ids:
        return threads
    found = [replace(one, os_id=ids.get(one.os_id or 0, one.os_id)) for one in threads]
    return tuple(sorted(found, key=lambda one: one.os_id != pid))


def seen_ids(pid: int) -> Mapping[int, int]:
    """Return our id of each thread by the process's own, {} where they are the same."""
    if not _own_id(f"/proc/{pid}/status"):
        return {}
    try:
        tids = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return {}
    own = {tid: _own_id(f"/proc/{pid}/task/{tid}/status") for tid in tids}
    return {inside: tid for tid, inside in own.items() if inside}


def _own_id(path: str) -> int | None:
    """Return the id that a thread has in its own namespace, None where that is the one here."""
    try:
        ids = ids_in(path)
    except OSError:
        return None
    return int(ids[-1]) if len(ids) > 1 else None


def ids_in(path: str) -> list[str]:
    """Return the ids of a process or thread in each pid namespace that it is in, ours first; `path`
    is its status below /proc. Raises OSError.
    """
    with open(path, errors="replace") as file:
        return next((line.split()[1:] for line in file if line.startswith("NSpid:")), [])
