"""Between two trials: the next one starts when the one before has given back what it had."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ..evidence.machine import machine
from ..facts import MachineFacts

FREE_LIMIT = 30.0  # seconds to wait for it; then the next trial starts all the same, and it is said
MEMORY_SHARE = 0.1  # of what was free before, that may be missing: caches and others' jobs
GPU_SHARE = 0.05  # of a GPU's memory, that may be missing: a driver's own
_PAUSE = 0.1
_PORT = re.compile(r"--(?:main_process_|main_|master[_-])port(?:=|$)")


@dataclass(frozen=True)
class Free:
    """What was free before the first trial."""

    memory: int | None  # bytes available
    gpus: Mapping[int, int]  # bytes in use, by GPU


def free_now() -> Free:
    """Return what is free now."""
    return _free(asyncio.run(machine()))


def wait_until_free(
    before: Free,
    command: Sequence[str],
    environment: Mapping[str, str],
    stopping: threading.Event | None = None,
    limit: float = FREE_LIMIT,
) -> str:
    """Wait until the port that a trial's command or environment names, memory and GPUs are free as
    `before`. Return what is still not after `limit` seconds, in words; "" if all is.
    """
    port = named_port(command, environment)
    until = time.monotonic() + limit
    while True:
        taken = _taken(before, port)
        if not taken or time.monotonic() > until or (stopping is not None and stopping.is_set()):
            return taken
        time.sleep(_PAUSE)


def named_port(command: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """Return the port that ranks meet at, where a launcher's words or MASTER_PORT name one."""
    value = environment.get("MASTER_PORT", "")
    for word, following in zip_longest(command, command[1:], fillvalue=""):
        if _PORT.match(word):
            value = word.partition("=")[2] or following
    return int(value) if value.isdigit() and 0 < int(value) < 1 << 16 else None


def _taken(before: Free, port: int | None) -> str:
    if port is not None and not _can_be_bound(port):
        return f"port {port} is still in use"
    now = free_now()
    if before.memory and now.memory is not None and now.memory < before.memory * (1 - MEMORY_SHARE):
        missing = (before.memory - now.memory) / 1e9
        return f"{missing:.1f} GB of memory are not back"
    for index, used in now.gpus.items():
        if used > before.gpus.get(index, used) * (1 + GPU_SHARE):
            return f"GPU {index} has {used / 1e9:.1f} GB in use still"
    return ""


def _free(found: MachineFacts) -> Free:
    used = {gpu.index: gpu.memory_used for gpu in found.gpus if gpu.memory_used is not None}
    return Free(found.memory_available, used)


def _can_be_bound(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
