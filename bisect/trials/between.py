"""Between two trials: the next one starts when the one before has given back what it had."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..bisection import launcher_words
from ..evidence.machine import machine
from ..facts import MachineFacts
from .apart import DEVICES, listed_devices

FREE_LIMIT = 30.0  # seconds to wait for it; then the next trial starts all the same, and it is said
MEMORY_SHARE = 0.1  # of what was free before, that may be missing: caches and others' jobs
GPU_SLACK = 256e6  # bytes of a GPU's memory that may be missing: a driver's own
_PAUSE = 0.1


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
    """Wait until the port that a trial's ranks meet at, memory and GPUs are free as `before`;
    `environment` has all variables that it got. Return what is still not after `limit` seconds, in
    words; "" if all is.
    """
    port = launcher_words.port(command, environment)
    until = time.monotonic() + limit
    while True:
        taken = _taken(before, port, environment)
        if not taken or time.monotonic() > until or (stopping is not None and stopping.is_set()):
            return taken
        time.sleep(_PAUSE)


def _taken(before: Free, port: int | None, environment: Mapping[str, str]) -> str:
    if port is not None and not _can_be_bound(port):
        return f"port {port} is still in use"
    return not_back(before, free_now(), environment)


def not_back(before: Free, now: Free, environment: Mapping[str, str]) -> str:
    """Return what of memory, and of the GPUs that a trial may use, is not free as before; "" if all
    is.
    """
    if before.memory and now.memory is not None and now.memory < before.memory * (1 - MEMORY_SHARE):
        missing = (before.memory - now.memory) / 1e9
        return f"{missing:.1f} GB of memory are not back"
    visible = listed_devices(environment.get(DEVICES, ""))
    for index, used in now.gpus.items():
        if DEVICES in environment and all(map(str.isdigit, visible)) and str(index) not in visible:
            continue  # somebody else's
        if used > before.gpus.get(index, used) + GPU_SLACK:
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
