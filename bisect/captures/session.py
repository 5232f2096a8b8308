"""Capturing in one process, into one folder: switched on or off, within its limits.

Whatever fails here, the job runs: capturing stops, and says why once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
from dataclasses import dataclass
from typing import Any

from ..whole_file import write_whole
from . import places, state, switch
from .amounts import Amount, of_rank, why_full
from .switch import Switch

LOOK_EVERY = 1.0  # seconds between two looks at the switch


@dataclass(frozen=True)
class Rank:
    """Which rank of how many this process is."""

    number: int
    world_size: int


class Session:
    """What all captured modules of a process share that write into one folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        # Seconds on the monotonic clock before which nothing is done; 0 while it captures.
        self.nothing_until = 0.0
        self.modules: list[str] = []
        self.rank = Rank(0, 1)
        self._look_at = 0.0
        self._seen: Switch | None = None
        self._has = Amount()
        self._stopped = ""

    def is_on(self, now: float) -> bool:
        """Return whether to capture; look at the switch if it is time. `now` is monotonic."""
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY
            found = switch.read(self.folder)
            if found != self._seen:
                self._switched(found)
        captures = self._seen is not None and not self._stopped
        self.nothing_until = 0.0 if captures else self._look_at
        return captures

    def _switched(self, found: Switch | None) -> None:
        self._seen, self._stopped = found, ""
        if found is None:
            return
        self.rank = this_rank()
        try:
            self._has = of_rank(self.folder, self.rank.number)
            self._tell(found)
        except OSError as error:
            self.stop(_reason(error))

    def write(self, file: str, data: bytes) -> None:
        """Write a file of this rank's, if there is room for it; else stop."""
        if self._seen is None or self._stopped:
            return
        limits, inputs = self._seen.limits, file.endswith(places.INPUTS)
        try:
            free = shutil.disk_usage(self.folder).free
            # Outputs belong to inputs that were counted.
            has = self._has if inputs else Amount(0, self._has.bytes)
            why = why_full(has, len(data), limits, self.rank.world_size, free)
            if why:
                self.stop(why)
                return
            write_whole(os.path.join(self.folder, file), data)
        except OSError as error:
            self.stop(_reason(error))
            return
        self._has += Amount(int(inputs), len(data))

    def stop(self, why: str) -> None:
        """Capture no more until it is switched on anew; say so on stderr."""
        if self._stopped or self._seen is None:
            return
        self._stopped = why
        with contextlib.suppress(Exception):
            sys.stderr.write(f"hangbisect: rank {self.rank.number} captures no more: {why}\n")
        with contextlib.suppress(OSError):
            self._tell(self._seen)

    def _tell(self, seen: Switch) -> None:
        host, modules = socket.gethostname(), tuple(self.modules)
        told = state.State(self.rank.number, host, os.getpid(), modules, seen.at, self._stopped)
        state.write(self.folder, told)


def this_rank() -> Rank:
    """Return the rank in torch's process group; where there is none yet, the launcher's."""
    torch: Any = sys.modules["torch"]
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Rank(torch.distributed.get_rank(), torch.distributed.get_world_size())
    from ..rank.place import find_place

    place = find_place()
    return Rank(place.rank, place.world_size)


def _reason(error: OSError) -> str:
    return f"{error.filename or 'a capture'}: {error.strerror or error}"


_SESSIONS: dict[str, Session] = {}


def session_for(folder: str) -> Session:
    """Return this process's session for a folder."""
    if folder not in _SESSIONS:
        _SESSIONS[folder] = Session(folder)
    return _SESSIONS[folder]
