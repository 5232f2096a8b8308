"""Files of the kernel read without psutil: /proc/PID/stat, the processes that there are, who is at
the other end of a socket, and what a control group lets a process have.

Both versions of cgroups (Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of the
kernel). A limit of any group above counts too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Set
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from .error_guard import raise_if_of_the_job
from .lazy_dataclass import dataclass

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
    terminal: int = 0  # a device number, as the kernel writes it; 0: none
    foreground: int = -1  # the process group in the foreground of that terminal
    stack: int = 0  # where its stack begins: as its parent's, unless it has begun a program


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
            stack=int(fields[25]) if len(fields) > 25 else 0,
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


def list_pids() -> list[int]:
    """Return the pids of all processes, none where /proc cannot be read."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Limits:
    """None: no limit, or not known. Bytes; `cores` may be a part of one."""

    cores: float | None = None
    memory: int | None = None
    memory_free: int | None = None  # below that limit; what the page cache would give back counts


def limits(own: str, root: Path = ROOT) -> Limits:
    """Return the limits on the groups in `own`, the text of a /proc/PID/cgroup."""
    cores: list[float] = []
    memory: list[tuple[int, int]] = []  # (free, limit)
    for folder in folders(own, root, {"cpu", "memory"}):
        if (share := _cores(folder)) is not None:
            cores.append(share)
        if (found := _memory(folder)) is not None:
            memory.append(found)
    free, limit = min(memory, default=(None, None))
    return Limits(min(cores, default=None), limit, free)


def folders(own: str, root: Path, wanted: Set[str]) -> Iterator[Path]:
    """Yield the folders of the groups in `own`, the text of a /proc/PID/cgroup, that have one of
    the controllers `wanted` (in the second version all have), and of those above them.
    """
    for line in own.splitlines():
        _, colon, rest = line.partition(":")
        names, second, path = rest.partition(":")
        if colon and second and (not names or wanted & {*names.split(",")}):
            yield from _folders(root, names, path)


def _folders(root: Path, names: str, path: str) -> Iterator[Path]:
    """Yield the folder of a group and of those above it, as far as they can be seen from here."""
    controllers = [root / one for one in (names, *names.split(","))] if names else [root]
    top = next((folder for folder in controllers if folder.is_dir()), None)
    if top is None:
        return
    # In a container the path may be the one outside of it; what is mounted is its own group.
    inside = PurePosixPath("/" + path.strip("/")).relative_to("/")
    for part in (inside, *inside.parents):
        if ".." not in part.parts:
            yield top / part


def _cores(folder: Path) -> float | None:
    quota, _, period = (_read_limit_file(folder / "cpu.max") or "").partition(" ")
    if not period:
        quota = _read_limit_file(folder / "cpu.cfs_quota_us") or ""
        period = _read_limit_file(folder / "cpu.cfs_period_us") or ""
    try:
        share = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None  # "max"
    return share if share > 0 else None  # -1: no limit


def _memory(folder: Path) -> tuple[int, int] | None:
    for limit, used, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        most, now = _read_limit(folder / limit), _read_limit(folder / used)
        if most is not None and now is not None:
            return max(0, most - now + min(now, _field(folder / "memory.stat", cache))), most
    return None


def _read_limit(path: Path) -> int | None:
    text = _read_limit_file(path)
    return int(text) if text and text.isdecimal() else None


def _field(path: Path, name: str) -> int:
    for line in (_read_limit_file(path) or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdecimal():
            return int(value)
    return 0


def _read_limit_file(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):
        return None
