"""What an open descriptor is, and who has its other end: read from /proc, never from the target.

Asking the file itself (stat) may block for ever on a frozen disk; its link in /proc does not.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from ..facts import Descriptor, Socket
from .sample import pids
from .sockets import inode_of

Kind = Literal["file", "pipe", "fifo", "socket", "tty", "device", "anon", "unknown"]


class End(NamedTuple):
    """A descriptor of some process."""

    pid: int
    fd: int
    reads: bool
    writes: bool


class Info(NamedTuple):
    """What /proc/PID/fdinfo/N says; None for what this kernel does not tell (inode: since 5.14)."""

    position: int | None = None
    mount: int | None = None
    inode: int | None = None
    locks: tuple[str, ...] = ()


def links(pid: int) -> dict[int, str]:
    """Return what each open descriptor of a process points to. Raises OSError if not permitted."""
    found: dict[int, str] = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue  # closed meanwhile
    return found


def kind_of(link: str, wchan: str = "", polled: bool = False) -> Kind:
    """Return what a link in /proc/PID/fd is.

    A FIFO looks like a file there. It is told by where its reader waits, and by being polled,
    which no file can be.
    """
    for start, kind in _STARTS:
        if link.startswith(start):
            return kind
    if not link.startswith("/"):
        return "unknown"
    if "pipe" in wchan or "fifo" in wchan or wchan == "wait_for_partner" or polled:
        return "fifo"
    return "file"


_STARTS: tuple[tuple[str, Kind], ...] = (
    ("socket:", "socket"),
    ("pipe:", "pipe"),
    ("anon_inode:", "anon"),
    ("/dev/pts/", "tty"),
    ("/dev/tty", "tty"),
    ("/dev/console", "tty"),
    ("/dev/shm/", "file"),
    ("/dev/hugepages/", "file"),
    ("/dev/mqueue/", "anon"),
    ("/dev/", "device"),
)


def info(pid: int, fd: int) -> Info:
    """Return position, mount, inode and locks of an open descriptor."""
    try:
        with open(f"/proc/{pid}/fdinfo/{fd}", errors="replace") as file:
            return parse_info(file.read())
    except OSError:
        return Info()


def parse_info(text: str) -> Info:
    """Return the fields of the text of a /proc/PID/fdinfo file."""
    numbers: dict[str, int] = {}
    locks: list[str] = []
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == "lock":
            locks.append(value.strip())
        elif key in ("pos", "mnt_id", "ino") and value.strip().isdecimal():
            numbers[key] = int(value)
    return Info(numbers.get("pos"), numbers.get("mnt_id"), numbers.get("ino"), tuple(locks))


def describe(
    pid: int,
    fd: int,
    link: str | None,
    sockets: Mapping[int, Socket],
    *,
    wchan: str = "",
    polled: bool = False,
) -> Descriptor:
    """Return what descriptor `fd` of a process is; `link` is None if it is not open."""
    if link is None:
        return Descriptor(fd, "unknown", "")
    kind = kind_of(link, wchan, polled)
    inode = inode_of(link)
    return Descriptor(
        fd,
        kind,
        link,
        socket=sockets.get(inode) if inode is not None else None,
        position=info(pid, fd).position if kind == "file" else None,
    )


def holders(wanted: Iterable[str]) -> dict[str, list[End]]:
    """Return who has each of these links open, among the processes that we may read.

    One pass over all of /proc/*/fd: 10 ms for 100 processes. Call it aside.
    """
    looked_for = set(wanted)
    found: dict[str, list[End]] = {link: [] for link in looked_for}
    if not looked_for:
        return found
    for pid in pids():
        try:
            open_here = links(pid)
        except OSError:
            continue
        for fd, link in open_here.items():
            if link in looked_for:
                found[link].append(_end(pid, fd))
    return found


def _end(pid: int, fd: int) -> End:
    # The link's own mode says how the file was opened: r for reading, w for writing.
    try:
        mode = os.lstat(f"/proc/{pid}/fd/{fd}").st_mode
    except OSError:
        return End(pid, fd, False, False)
    return End(pid, fd, bool(mode & stat.S_IRUSR), bool(mode & stat.S_IWUSR))


def other_ends(pid: int, fd: int, ends: Iterable[End]) -> tuple[int, ...]:
    """Return the pids that hold the other end of a pipe, the process itself last.

    That it holds it itself (and so never sees its end) is a finding of its own.
    """
    known = list(ends)
    mine = next((end for end in known if (end.pid, end.fd) == (pid, fd)), None)
    writers = mine is None or mine.reads
    found = dict.fromkeys(
        end.pid
        for end in known
        if (end.writes if writers else end.reads) and (end.pid, end.fd) != (pid, fd)
    )
    return tuple(sorted(found, key=lambda other: other == pid))
