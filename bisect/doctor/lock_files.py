"""Locks in the caches: who has them, and those that a dead process left behind.

A lock on a file (flock: the hub, datasets, Triton, torch.compile) goes with its process; the file
that stays is harmless. Where the file itself is the lock, it stays: `lock` in a folder of a torch
extension (torch/utils/file_baton.py), and the files of SoftFileLock (package filelock), which the
hub takes where a file system has no locks; newer ones hold the pid and host of who made them.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from ..base.proc import read_stat
from ..base.words import format_seconds
from ..evidence.descriptors import find_holders
from ..evidence.lock_and_log_files import find_all_held_locks
from .checks import Check, Family, Finding, Setting, ok, problem, run_in_threads, unknown, warning
from .folders import Folder, Mount, caches, mount_of, mounted
from .processes import Process, process

_PATIENCE = 5.0  # seconds to walk one cache
_MOST = 50_000  # entries of one cache
_DEEPEST = 6
_BUILDS = "torch extensions"
_STOPPED = "Tt"
_BRIEF = 600.0  # seconds that a download or a build may well take


class Marker(NamedTuple):
    """Who made the file of a SoftFileLock."""

    pid: int
    host: str


@dataclass(frozen=True)
class LockFile:
    """A lock in a cache. `age` in seconds since its file was touched."""

    cache: str
    path: str
    age: float
    itself: bool  # the file is the lock
    holder: Process | None = None
    stopped: bool = False  # its holder is
    marker: Marker | None = None
    network: bool = False


@dataclass(frozen=True)
class Locks:
    """What was found in all caches."""

    held: tuple[LockFile, ...] = ()
    left: tuple[LockFile, ...] = ()  # the file is the lock, and nobody of this machine has it
    idle: int = 0  # files of locks that nobody has
    late: tuple[str, ...] = ()  # caches that could not be read in time, or not all of it
    host: str = ""


def read(setting: Setting) -> Locks:
    """Walk the caches, and ask the kernel who has which lock."""
    folders = caches(setting.environ)
    mounts = mounted()
    walked = run_in_threads(_PATIENCE, {one.title: partial(_walk, one) for one in folders})
    done_with = {title: one for title, one in walked.items() if isinstance(one, Walked)}
    found = {lock.path: lock for one in done_with.values() for lock in one.found}
    kept = {
        lock.path: lock.holder
        for lock in find_all_held_locks()
        if lock.holder not in (None, os.getpid())
    }
    for path in kept.keys() - found.keys():
        found |= _deeper(path, done_with)
    ends = find_holders(path for path, lock in found.items() if lock.itself)
    opened = {path: end.pid for path, those in ends.items() for end in those}
    host = setting.place.host
    done = [
        _completed(lock, kept.get(path) or opened.get(path) or _made_by(lock, host), mounts)
        for path, lock in found.items()
    ]
    return Locks(
        held=tuple(lock for lock in done if lock.holder is not None),
        left=tuple(lock for lock in done if lock.holder is None and lock.itself),
        idle=sum(lock.holder is None and not lock.itself for lock in done),
        late=tuple(t for t in walked if t not in done_with or not done_with[t].complete),
        host=host,
    )


def _deeper(path: str, walked: Mapping[str, Walked]) -> dict[str, LockFile]:
    """Return a held lock in a cache that the walk did not come to."""
    for title, one in walked.items():
        if path.startswith(one.top + "/"):
            return {path: LockFile(title, path, 0.0, itself=False)}
    return {}


def _made_by(lock: LockFile, host: str) -> int | None:
    """Return who made the file of a SoftFileLock, None if it is gone or of another machine."""
    marker = lock.marker
    if marker is None or marker.host != host or read_stat(marker.pid) is None:
        return None
    return marker.pid


def _completed(lock: LockFile, pid: int | None, mounts: Sequence[Mount]) -> LockFile:
    mount = mount_of(lock.path, mounts)
    found = read_stat(pid) if pid is not None else None
    return replace(
        lock,
        holder=process(pid) if pid is not None else None,
        stopped=found is not None and found.state in _STOPPED,
        network=mount is not None and mount.is_network,
    )


class Walked(NamedTuple):
    """What was found below a cache. `top` is the cache without links."""

    top: str
    found: list[LockFile]
    complete: bool


def _walk(folder: Folder) -> Walked:
    """Return the lock files below a cache."""
    found: list[LockFile] = []
    top = os.path.realpath(folder.path)
    todo, seen, now = [(top, 0)], 0, time.time()
    while todo and seen < _MOST:
        path, depth = todo.pop()
        try:
            entries = list(os.scandir(path))
        except OSError:
            continue
        seen += len(entries)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                # Of the hub all locks are in one folder; the files of models are many.
                is_model = entry.name in ("blobs", "snapshots", "refs")
                todo += [] if is_model or depth == _DEEPEST else [(entry.path, depth + 1)]
            elif entry.name == "lock" or entry.name.endswith(".lock"):
                one = _lock_file(folder, entry, now)
                found += [one] if one is not None else []
    return Walked(top, found, not todo)


def _lock_file(folder: Folder, entry: os.DirEntry[str], now: float) -> LockFile | None:
    try:
        about = entry.stat(follow_symlinks=False)
        marker = _marker(entry.path) if 0 < about.st_size <= 1024 else None
    except OSError:
        return None
    itself = marker is not None or (folder.title == _BUILDS and entry.name == "lock")
    age = max(0.0, now - about.st_mtime)
    return LockFile(folder.title, entry.path, age, itself, marker=marker)


def _marker(path: str) -> Marker | None:
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | os.O_NOFOLLOW
    with open(os.open(path, flags), "rb") as file:
        return parse_marker(file.read(1024))


def parse_marker(data: bytes) -> Marker | None:
    """Return who made the file of a SoftFileLock: its pid and host are the first two lines."""
    lines = data.decode(errors="replace").splitlines()
    if len(lines) < 2 or not (lines[0].isascii() and lines[0].isdecimal() and len(lines[0]) < 10):
        return None
    return Marker(int(lines[0]), lines[1].strip()) if lines[1].strip() else None


# ---- judged --------------------------------------------------------------------------------------


def held(setting: Setting, facts: Locks) -> Iterator[Finding]:
    """Judge locks that somebody has."""
    for lock in facts.held:
        if lock.holder is None:
            continue
        said = f"{lock.path} ({lock.cache}) is held by {lock.holder}"
        look = f"ps -o pid,stat,etime,args -p {lock.holder.pid}"
        if lock.stopped:
            yield problem(f"{said}, which is stopped", f"kill -CONT {lock.holder.pid}, or end it")
        elif min(lock.age, lock.holder.age or 0.0) < _BRIEF:
            yield ok(f"{said}, not for long")
        else:
            yield warning(f"{said}: who needs it waits", f"{look}; end it if it was left behind")
    for title in facts.late:
        yield unknown(f"not all of the {title} could be looked through in {_PATIENCE:g} s")
    if not facts.held and not facts.late:
        yield ok("nobody has one" + (f"; {facts.idle} idle files, harmless" if facts.idle else ""))


def stale(setting: Setting, facts: Locks) -> Iterator[Finding]:
    """Judge files that are locks themselves, and that nobody has."""
    for lock in facts.left:
        old = f"{lock.path} ({lock.cache}) is {format_seconds(lock.age)} old"
        if lock.marker is not None and lock.marker.host != facts.host:
            yield warning(
                f"{old}, made by process {lock.marker.pid} of {lock.marker.host}",
                f"rm {shlex.quote(lock.path)} if that process is gone",
            )
        elif lock.network:
            yield warning(
                f"{old}, and no process of this machine has it open; one of another may",
                f"rm {shlex.quote(lock.path)} if nobody builds",
            )
        else:
            who = f": {lock.marker.pid}, who made it, is gone" if lock.marker else ""
            yield problem(
                f"{old}, and no process has it{who or ' open'}: every start waits for it for ever",
                f"rm {shlex.quote(lock.path)}",
            )
    if not facts.left:
        yield ok("none")


FAMILY = Family(
    "Locks in caches",
    (
        Check(
            id="held-locks",
            title="nobody has a lock in the caches",
            why="The hub, datasets, Triton and torch.compile ask for a lock again and again until "
            "who has it is done.",
            read=read,
            judge=held,
        ),
        Check(
            id="stale-locks",
            title="no lock file was left behind by a process that is gone",
            why="The build of a torch extension, and SoftFileLock, wait until the file disappears.",
            read=read,
            judge=stale,
        ),
    ),
)
