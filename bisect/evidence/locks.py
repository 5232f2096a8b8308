"""Locks on files: which this process waits for, which it only asks for, and who has them.

From /proc/locks and /proc/PID/fdinfo. A waiter is listed there behind its holder with `->`. A
poller (filelock asks, closes the file and sleeps) is in no list: look for what the others hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..facts import FileLock
from .descriptors import info, links
from .sample import pids, stat

Key = tuple[int, int, int]  # device (major, minor) and inode


class Entry(NamedTuple):
    """A line of /proc/locks. `pid` is 0 or less where the kernel does not tell it."""

    number: int
    waits: bool
    kind: str  # FLOCK, POSIX, OFDLCK, LEASE, ...
    pid: int
    file: Key


def parse(line: str) -> Entry | None:
    """Return the entry in a line of /proc/locks (or after `lock:` in fdinfo), or None."""
    fields = line.split()
    try:
        number = int(fields[0].rstrip(":"))
        waits = fields[1] == "->"
        kind, _, _, pid, where = fields[1 + waits : 6 + waits]
        major, minor, inode = where.split(":")
        return Entry(number, waits, kind, int(pid), (int(major, 16), int(minor, 16), int(inode)))
    except (IndexError, ValueError):
        return None


def entries() -> list[Entry]:
    """Return all of /proc/locks, a waiter behind the lock that it waits for."""
    try:
        with open("/proc/locks", errors="replace") as file:
            return [entry for line in file if (entry := parse(line))]
    except OSError:
        return []


class Opened(NamedTuple):
    """The files that a process has open, by device and inode."""

    paths: dict[Key, str]
    locked: frozenset[Key]  # it holds a lock on them, whoever took it


def opened(pid: int, at: Mapping[int, str] | None = None) -> Opened:
    """Return the files that a process has open; empty where this is not permitted.

    `at`: its links, if known. The device comes from its mounts, the inode from fdinfo (since
    Linux 5.14; before, only locks are found that are held through the file).
    """
    paths: dict[Key, str] = {}
    locked: set[Key] = set()
    try:
        found = links(pid) if at is None else at
    except OSError:
        return Opened({}, frozenset())
    devices = mounts(pid)
    for fd, link in found.items():
        if not link.startswith("/") or link.startswith(("/dev/pts/", "/dev/null")):
            continue
        about = info(pid, fd)
        held = [entry.file for text in about.locks if (entry := parse(text))]
        locked.update(held)
        device = devices.get(about.mount) if about.mount is not None else None
        if held:
            paths[held[0]] = link
        elif device is not None and about.inode is not None:
            paths[(*device, about.inode)] = link
    return Opened(paths, frozenset(locked))


def mounts(pid: int) -> dict[int, tuple[int, int]]:
    """Return the device of each mount that a process sees."""
    try:
        with open(f"/proc/{pid}/mountinfo", errors="replace") as file:
            return parse_mounts(file.read())
    except OSError:
        return {}


def parse_mounts(text: str) -> dict[int, tuple[int, int]]:
    """Return {mount id: (major, minor)} from the text of /proc/PID/mountinfo."""
    found: dict[int, tuple[int, int]] = {}
    for line in text.splitlines():
        fields = line.split()
        try:
            major, minor = fields[2].split(":")
            found[int(fields[0])] = (int(major), int(minor))
        except (IndexError, ValueError):
            continue
    return found


def of_process(
    pid: int, known: Sequence[Entry], here: Opened
) -> tuple[tuple[FileLock, ...], tuple[FileLock, ...]]:
    """Return (the locks it waits or polls for, the locks it holds)."""
    wanted: list[FileLock] = []
    held: list[FileLock] = []
    waits_for = {entry.file for entry in known if entry.waits and entry.pid == pid}
    for entry in known:
        if entry.waits or entry.kind == "LEASE":
            continue
        path, inode = here.paths.get(entry.file, ""), entry.file[2]
        if entry.file in here.locked or entry.pid == pid:
            held.append(FileLock(path, inode, pid, _name(pid), waiting=False))
        elif entry.file in waits_for or path:
            holder, name = _holder(entry)
            wanted.append(FileLock(path, inode, holder, name, waiting=entry.file in waits_for))
    return tuple(dict.fromkeys(wanted)), tuple(dict.fromkeys(held))


def _holder(entry: Entry) -> tuple[int | None, str]:
    """Who has a lock: whoever took it, or who inherited it when that one is gone."""
    if entry.pid > 0 and (found := stat(entry.pid)) and found.state not in "ZX":
        return entry.pid, found.comm
    for pid in pids():
        if entry.file in opened(pid).locked:
            return pid, _name(pid)
    return None, ""


def all_held() -> tuple[FileLock, ...]:
    """Return every lock on a file that a process which we may read holds. Call it aside."""
    known = entries()
    found: list[FileLock] = []
    for pid in dict.fromkeys(entry.pid for entry in known if not entry.waits and entry.pid > 0):
        found += of_process(pid, known, opened(pid))[1]
    return tuple(dict.fromkeys(found))


def _name(pid: int) -> str:
    found = stat(pid)
    return found.comm if found else ""
