"""What an earlier start left behind: processes that were not ended, which hold GPUs, ports and
locks; and locks in the caches, which process has them, and those whose process is gone.

A lock on a file (flock: the hub, datasets, Triton, torch.compile) goes with its process; the file
that stays is harmless. Where the file itself is the lock, it stays: `lock` in a folder of a torch
extension (torch/utils/file_baton.py), and the files of SoftFileLock (package filelock), which the
hub takes where a file system has no locks; newer ones hold the pid and host of who made them.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ..base.addresses import port_of
from ..base.launcher_env import Ancestor
from ..base.launchers import ALONE_BUT_SRUNS
from ..base.lazy_dataclass import dataclass
from ..base.proc import list_pids, read_stat
from ..base.process_roles import is_title
from ..base.words import format_seconds
from ..evidence.descriptors import (
    GPU_DEVICE,
    find_holders,
    parse_socket_inode,
    read_links,
    read_sockets,
)
from ..evidence.lock_and_log_files import find_all_held_locks, read_kernel_locks
from ..evidence.process import uid_of
from .examination import (
    Check,
    CheckedProcess,
    CheckFamily,
    Finding,
    Setting,
    ok,
    problem,
    process,
    run_in_threads,
    unknown,
    variables_of,
    warning,
    words_of,
)
from .folders import Folder, Mount, caches, mount_of, mounted

# Every launcher, and Lightning, sets one of these in each rank; children inherit them.
_MARKS = ("LOCAL_RANK", *ALONE_BUT_SRUNS)
# Helpers of ranks that mostly come without them: W&B's core, Python's own children.
_HELPERS = re.compile(r"wandb-core|multiprocessing\.(?:spawn|forkserver|resource_tracker)")
_INITS = re.compile(r"systemd|init|tini|dumb-init|docker-init|catatonit|s6-svscan|runit")
_DEEPEST = 40
_MOST = 6  # named


@dataclass(frozen=True)
class Seen:
    """A process as it is looked at here."""

    pid: int
    parent: int
    name: str
    words: tuple[str, ...] = ()
    marked: bool = False  # it has the variables of a rank, or is a helper of one

    @property
    def is_ours(self) -> bool:
        """It is one of hangbisect's own: its monitor leaves its parent on purpose."""
        return any(re.search(r"\b(?:hang)?bisect\b", word) for word in self.words[:8])


@dataclass(frozen=True)
class Left:
    """What a process that was left behind holds."""

    process: CheckedProcess
    gpus: tuple[int, ...] = ()
    ports: tuple[int, ...] = ()
    locks: int = 0

    @property
    def holds(self) -> str:
        """What it holds, in words; "" for nothing."""
        said = [f"GPU {', '.join(map(str, self.gpus))}"] if self.gpus else []
        said += [f"port {', '.join(map(str, self.ports[:4]))}"] if self.ports else []
        said += [f"{self.locks} lock{'s' * (self.locks > 1)}"] if self.locks else []
        return " and ".join(said)


def read_leftovers(setting: Setting) -> tuple[Left, ...]:
    """Look through the processes of this user."""
    seen = {one.pid: one for one in _all(set(setting.pids))}
    found = orphans(seen, Ancestor({}, words_of(1)))
    if not found:
        return ()
    sockets, locked = (
        read_sockets(),
        [entry.pid for entry in read_kernel_locks() if not entry.waits],
    )
    ports = {
        one.inode: int(port_of(one.local))
        for one in sockets.values()
        if one.family.startswith("tcp") and one.state == "LISTEN"
    }
    return tuple(_left(pid, ports, locked.count(pid)) for pid in found)


def orphans(seen: Mapping[int, Seen], first: Ancestor) -> tuple[int, ...]:
    """Return the processes of a rank whose launcher is gone: what is above them is the first
    process or a session's, and no launcher. `first` is process 1: in a container it may be one.
    """
    if first.launcher or re.search(r"python", "".join(first.words[:1])):
        return ()
    found = []
    for pid, one in sorted(seen.items()):
        top = one
        for _ in range(_DEEPEST):
            above = seen.get(top.parent)
            if above is None or above.pid == 1 or _INITS.fullmatch(above.name):
                break
            top = above
        is_launcher = Ancestor({}, top.words).launcher is not None
        if one.marked and top.marked and not is_launcher and not one.is_ours:
            found.append(pid)
    return tuple(found)


def _all(above: set[int]) -> Iterator[Seen]:
    """Yield all processes; of other users, and of those above us, no more than their names."""
    mine = os.getuid()
    for pid in list_pids():
        found = read_stat(pid)
        # What is in state D may block the process that reads its words.
        if found is None or found.state in "ZXD" or pid == os.getpid():
            continue
        if uid_of(pid) != mine:
            yield Seen(pid, found.ppid, found.comm)
            continue
        words = words_of(pid)
        marks = variables_of(pid) if pid not in above else {}
        marked = any(marks.get(name) for name in _MARKS) or is_helper(words)
        yield Seen(pid, found.ppid, found.comm, words, marked)


def is_helper(words: Sequence[str]) -> bool:
    """Return whether a command line is that of a helper of ranks, or the title of a process of an
    inference server or a cluster, which stands where its variables were.
    """
    if is_title(words):
        return True
    text = " ".join([*map(os.path.basename, words[:1]), *words[1:5]])
    return bool(_HELPERS.search(text))


def _left(pid: int, ports: Mapping[int, int], locks: int) -> Left:
    try:
        targets: Iterable[str] = read_links(pid).values()
    except OSError:
        targets = ()
    gpus: dict[int, None] = {}
    mine: dict[int, None] = {}
    for target in targets:
        if (device := GPU_DEVICE.fullmatch(target)) is not None:
            gpus[int(device[1] or 0)] = None
        elif (inode := parse_socket_inode(target)) in ports and inode is not None:
            mine[ports[inode]] = None
    return Left(process(pid), tuple(sorted(gpus)), tuple(sorted(mine)), locks)


# ---- judged --------------------------------------------------------------------------------------


def left_behind(setting: Setting, facts: tuple[Left, ...]) -> Iterator[Finding]:
    """Judge what processes of an earlier start hold; those of one job are told together."""
    holding = [one for one in facts if one.holds]
    port = setting.environ.get("MASTER_PORT", "")
    jobs: dict[tuple[str, tuple[str, ...]], list[Left]] = {}
    for one in sorted(holding, key=lambda one: not one.gpus):
        jobs.setdefault((one.process.name, one.process.words), []).append(one)
    for these in list(jobs.values())[:_MOST]:
        whole = together(these)
        more = f" and {len(these) - 1} like it" if len(these) > 1 else ""
        said = f"{whole.process}{more}: the launcher is gone, and held is {whole.holds}"
        pids = " ".join(str(one.process.pid) for one in these)
        next = f"kill {pids} (kill -9 if it stays), if it is no job of yours"
        serious = bool(whole.gpus) or port in map(str, whole.ports)
        yield problem(said, next) if serious else warning(said, next)
    if len(jobs) > _MOST:
        yield warning(f"{len(jobs) - _MOST} more jobs were left behind", "ps -fu $USER")
    if not holding:
        yield ok("none" + (f" ({len(facts)} that hold nothing)" if facts else ""))


def together(these: Sequence[Left]) -> Left:
    """Return what several processes hold together, as of the first."""
    return Left(
        these[0].process,
        tuple(sorted({gpu for one in these for gpu in one.gpus})),
        tuple(sorted({port for one in these for port in one.ports})),
        sum(one.locks for one in these),
    )


FAMILY = CheckFamily(
    "Left behind",
    (
        Check(
            id="leftovers",
            title="no process of an earlier start of yours holds a GPU, a port or a lock",
            why="torchrun that is killed leaves its ranks running: the next start finds its port, "
            "its GPU memory or its locks taken.",
            read=read_leftovers,
            judge=left_behind,
        ),
    ),
)


_PATIENCE = 5.0  # seconds to walk one cache
_MOST_ENTRIES = 50_000  # entries of one cache
_DEEPEST_FOLDER = 6
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
    holder: CheckedProcess | None = None
    stopped: bool = False  # its holder is
    marker: Marker | None = None
    network: bool = False


@dataclass(frozen=True)
class Locks:
    """What was found in all caches."""

    held: tuple[LockFile, ...] = ()
    left: tuple[LockFile, ...] = ()  # the file is the lock, and no process of this machine has it
    idle: int = 0  # files of locks that no process has
    late: tuple[str, ...] = ()  # caches that could not be read in time, or not all of it
    host: str = ""


def read_locks(setting: Setting) -> Locks:
    """Walk the caches, and ask the kernel who has which lock."""
    folders = caches(setting.environ)
    mounts = mounted()
    walked = run_in_threads(_PATIENCE, {one.title: partial(_walk_folder, one) for one in folders})
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


def _walk_folder(folder: Folder) -> Walked:
    """Return the lock files below a cache."""
    found: list[LockFile] = []
    top = os.path.realpath(folder.path)
    todo, seen, now = [(top, 0)], 0, time.time()
    while todo and seen < _MOST_ENTRIES:
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
                todo += [] if is_model or depth == _DEEPEST_FOLDER else [(entry.path, depth + 1)]
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
    """Judge locks that a process has."""
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
    """Judge files that are locks themselves, and that no process has."""
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


LOCK_FILES = CheckFamily(
    "Locks in caches",
    (
        Check(
            id="held-locks",
            title="nobody has a lock in the caches",
            why="The hub, datasets, Triton and torch.compile ask for a lock again and again until "
            "who has it is done.",
            read=read_locks,
            judge=held,
        ),
        Check(
            id="stale-locks",
            title="no lock file was left behind by a process that is gone",
            why="The build of a torch extension, and SoftFileLock, wait until the file disappears.",
            read=read_locks,
            judge=stale,
        ),
    ),
)
