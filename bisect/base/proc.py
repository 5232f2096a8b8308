"""/proc/PID/stat, the processes that there are, and which one is at the other end of a socket: read
without a library, by ranks too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from .error_guard import raise_if_of_the_job

if TYPE_CHECKING:
    from socket import socket

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
    session: int = 0  # the pid of its leader (setsid(2))
    terminal: int = 0  # a device number, as the kernel writes it; 0: none
    foreground: int = -1  # the process group in the foreground of that terminal
    stack: int = 0  # where its stack begins: as its parent's, unless it has begun a program
    flags: int = 0  # PF_* of the kernel's include/linux/sched.h


_FORKED_ONLY = 0x40  # PF_FORKNOEXEC


def is_forked_only(about: Stat) -> bool:
    """Return whether a process was forked, and has begun no program since."""
    return bool(about.flags & _FORKED_ONLY)


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
            session=int(fields[3]),
            terminal=int(fields[4]),
            foreground=int(fields[5]),
            stack=int(fields[25]) if len(fields) > 25 else 0,
            flags=int(fields[6]),
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
        raise_if_of_the_job(error)
        return None


def walk_up(pid: int, most: int) -> Iterator[int]:
    """Yield the pids of at most so many processes above one, its parent first, without init."""
    for _ in range(most):
        about = read_stat(pid)
        if about is None or about.ppid <= 1:
            return
        pid = about.ppid
        yield pid


def read_start_time(pid: int) -> int:
    """Return when a process started, in clock ticks after boot; 0 if it is gone."""
    found = read_stat(pid)
    return found.started if found else 0


def find_peer_pid(connection: socket) -> int:
    """Return the process at the other end of a Unix socket, 0 if it is in another pid namespace
    (SO_PEERCRED: pid, uid, gid; unix(7)). Raises OSError.
    """
    from socket import SO_PEERCRED, SOL_SOCKET  # who has a connection has loaded it

    found = connection.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)
    return int.from_bytes(found[:4], sys.byteorder, signed=True)


def process_of_thread(number: int) -> int | None:
    """Return the pid of the process that a thread is one of, by the number that `top -H` and py-spy
    show; of a process its own, None where there is neither (Tgid in /proc/TID/status, proc(5): each
    thread has it, though /proc does not list it).
    """
    try:
        with open(f"/proc/{number}/status") as file:
            told = next((line for line in file if line.startswith("Tgid:")), "")
        return int(told.removeprefix("Tgid:"))
    except (OSError, ValueError):
        return None


def list_pids() -> list[int]:
    """Return the pids of all processes, none where /proc cannot be read."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
