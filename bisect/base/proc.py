"""/proc/PID/stat, and the processes that there are: read without a library, by ranks too."""

from __future__ import annotations

import os
from typing import NamedTuple

from .our_errors import pass_on

LARGEST = 1 << 24  # bytes of a file below /proc, which may be as large as a process makes it


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that are of use here (proc(5))."""

    comm: str
    state: str
    ppid: int
    faults: int
    ticks: int  # user + system
    started: int  # clock ticks after boot
    status: int = 0  # of a zombie, as wait() gives it; 0 where the kernel does not tell
    group: int = 0
    terminal: int = 0  # a device number, as the kernel writes it; 0: none
    foreground: int = -1  # the process group in the foreground of that terminal


def parse_stat(text: str) -> Stat | None:
    """Return the fields of a line of /proc/PID/stat, None if it is not one."""
    # The name may hold spaces and brackets: it ends at the last one.
    first, _, rest = text.rpartition(")")
    fields = rest.split()
    _, bracket, comm = first.partition("(")
    if not bracket:
        return None
    try:
        return Stat(
            comm,
            state=fields[0],
            ppid=int(fields[1]),
            faults=int(fields[9]),
            ticks=int(fields[11]) + int(fields[12]),
            started=int(fields[19]),
            status=int(fields[49]) if len(fields) > 49 else 0,
            group=int(fields[2]),
            terminal=int(fields[4]),
            foreground=int(fields[5]),
        )
    except (IndexError, ValueError):
        return None


def read_stat(pid: int, tid: int | None = None) -> Stat | None:
    """Return what /proc says of a process (or of one thread of it), None if it is gone."""
    path = f"/proc/{pid}/stat" if tid is None else f"/proc/{pid}/task/{tid}/stat"
    try:
        with open(path, errors="replace") as file:
            return parse_stat(file.read())
    except OSError as error:
        pass_on(error)
        return None


def list_pids() -> list[int]:
    """Return the pids of all processes, none where /proc cannot be read."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
