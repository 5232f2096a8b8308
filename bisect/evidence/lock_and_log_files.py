"""The lock files and log files of processes: which locks on files a process waits for, which it
only asks for, and who has them; the tails of W&B's logs, and what ranks printed last.

Locks are read from /proc/locks and /proc/PID/fdinfo. A waiter is listed there behind its holder
with `->`. A poller (filelock asks, closes the file and sleeps) is in no list: look for what the
others hold.

Ranks print to files of their own with torchrun's --redirects and --tee, and under a batch
system. Whatever opens one of these files may block with the disk: call it with a limit.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from ..base.identity import RankId
from ..base.lazy_dataclass import dataclass
from ..base.library_functions import Role, has_role
from ..base.lock_polls import compile_path_pattern, find_lock_poll, find_told_lock_path
from ..base.masking import mask_text
from ..base.proc import LARGEST, list_pids, read_stat
from ..base.process_facts import FileLock, Frame, LogTail, Thread
from ..base.rank_facts import THREAD_ENDED
from .descriptors import find_holders, read_descriptor_info, read_links

_MOST_LOCKS = 100_000

FileKey = tuple[int, int, int]  # device (major, minor) and inode


class LockEntry(NamedTuple):
    """A line of /proc/locks. `pid` is 0 or less where the kernel does not tell it."""

    number: int
    waits: bool
    kind: str  # FLOCK, POSIX, OFDLCK, LEASE, ...
    pid: int
    file: FileKey


def parse_lock(line: str) -> LockEntry | None:
    """Return the entry in a line of /proc/locks (or after `lock:` in fdinfo), or None."""
    fields = line.split()
    try:
        number = int(fields[0].rstrip(":"))
        waits = fields[1] == "->"
        kind, _, _, pid, where = fields[1 + waits : 6 + waits]
        major, minor, inode = where.split(":")
        return LockEntry(
            number, waits, kind, int(pid), (int(major, 16), int(minor, 16), int(inode))
        )
    except (IndexError, ValueError):
        return None


def read_kernel_locks() -> list[LockEntry]:
    """Return all of /proc/locks, a waiter behind the lock that it waits for."""
    try:
        with open("/proc/locks", errors="replace") as file:
            return [entry for line in islice(file, _MOST_LOCKS) if (entry := parse_lock(line))]
    except OSError:
        return []


class OpenFiles(NamedTuple):
    """The files that a process has open, by device and inode."""

    paths: dict[FileKey, str]
    locked: frozenset[FileKey]  # it holds a lock on them, whoever took it


def read_open_files(pid: int, at: Mapping[int, str] | None = None) -> OpenFiles:
    """Return the files that a process has open; empty where this is not permitted.

    `at`: its links, if known. The device comes from its mounts, the inode from fdinfo (since
    Linux 5.14; before, only locks are found that are held through the file).
    """
    paths: dict[FileKey, str] = {}
    locked: set[FileKey] = set()
    try:
        found = read_links(pid) if at is None else at
    except OSError:
        return OpenFiles({}, frozenset())
    devices = read_mount_devices(pid)
    for fd, link in found.items():
        if not link.startswith("/") or link.startswith(("/dev/pts/", "/dev/null")):
            continue
        about = read_descriptor_info(pid, fd)
        held = [entry.file for text in about.locks if (entry := parse_lock(text))]
        locked.update(held)
        device = devices.get(about.mount) if about.mount is not None else None
        if held:
            paths[held[0]] = link
        elif device is not None and about.inode is not None:
            paths[(*device, about.inode)] = link
    return OpenFiles(paths, frozenset(locked))


def read_mount_devices(pid: int) -> dict[int, tuple[int, int]]:
    """Return the device of each mount that a process sees."""
    try:
        with open(f"/proc/{pid}/mountinfo", errors="replace") as file:
            return parse_mount_devices(file.read(LARGEST))
    except OSError:
        return {}


def parse_mount_devices(text: str) -> dict[int, tuple[int, int]]:
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


def find_locks_of_process(
    pid: int, known: Sequence[LockEntry], here: OpenFiles
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
            held.append(FileLock(path, inode, pid, _process_name(pid), waiting=False))
        elif entry.file in waits_for or path:
            holder, name = _find_lock_holder(entry)
            wanted.append(FileLock(path, inode, holder, name, waiting=entry.file in waits_for))
    return tuple(dict.fromkeys(wanted)), tuple(dict.fromkeys(held))


def _find_lock_holder(entry: LockEntry) -> tuple[int | None, str]:
    """Who has a lock: whoever took it, or who inherited it when that one is gone."""
    if entry.pid > 0 and (found := read_stat(entry.pid)) and found.state not in "ZX":
        return entry.pid, found.comm
    for pid in list_pids():
        if entry.file in read_open_files(pid).locked:
            return pid, _process_name(pid)
    return None, ""


def find_all_held_locks() -> tuple[FileLock, ...]:
    """Return every lock on a file that a process which we may read holds. Call it with a limit."""
    known = read_kernel_locks()
    found: list[FileLock] = []
    for pid in dict.fromkeys(entry.pid for entry in known if not entry.waits and entry.pid > 0):
        found += find_locks_of_process(pid, known, read_open_files(pid))[1]
    return tuple(dict.fromkeys(found))


def _process_name(pid: int) -> str:
    found = read_stat(pid)
    return found.comm if found else ""


MOST_LOG_LINES = 8
_MOST_TRACEBACK = 40
MOST_LINE_CHARACTERS = 400
_TAIL = 16384  # bytes: W&B's lines have some 200 characters, and may hold a whole configuration

# In wandb/run-*/logs (docs.wandb.ai, "Which files should I check when my code crashes?"); the core
# writes one of its own below ~/.cache/wandb/logs.
_WANDB_LOG = re.compile(r"/\.?wandb/.*/(?:debug|debug-internal|debug-core|core-debug[\w-]*)\.log$")


_MOST_FRAMES = 8  # in which the object of a lock is looked for


def add_lock_ages(pid: int, found: Sequence[FileLock]) -> tuple[FileLock, ...]:
    """Return these locks with the age of their files, as far as it can be had."""
    return tuple(replace(one, age=_file_age(_stat_for_process(pid, one.path))) for one in found)


def find_awaited_files(threads: Sequence[Thread]) -> Iterator[str]:
    """Yield the files that threads wait to disappear: their being there is the lock.

    torch/utils/file_baton.py waits for `lock` in the folder of a build; SoftFileLock of the package
    filelock for the lock file itself.
    """
    for thread in threads:
        if not _awaits_file(thread.frames):
            continue
        if path := find_told_lock_path(thread.frames):
            yield path


def _awaits_file(frames: Sequence[Frame]) -> bool:
    """Return True for a poll of a lock that is not one of the kernel's."""
    frame = find_lock_poll(frames)
    if frame is None:
        return False
    return has_role(frame.file, frame.name, Role.AWAITS_BUILD) or any(
        "SoftFileLock" in dict(one.locals).get("self", "") for one in frames[:_MOST_FRAMES]
    )


def find_awaited_locks(
    pid: int, threads: Sequence[Thread]
) -> tuple[tuple[FileLock, ...], tuple[FileLock, ...]]:
    """Return (lock files that a process of this machine has open, those that nobody has) of those
    that the process waits to disappear. Who made one keeps it open until it is done.
    """
    paths = dict.fromkeys(find_awaited_files(threads))
    there = {path: about for path in paths if (about := _stat_for_process(pid, path)) is not None}
    ends = find_holders(there)
    held: list[FileLock] = []
    stale: list[FileLock] = []
    for path, about in there.items():
        one = FileLock(path, about.st_ino, None, waiting=False, age=_file_age(about))
        holder = next((end.pid for end in ends[path] if end.pid != pid), None)
        if holder is None:
            stale.append(one)
        else:
            name = found.comm if (found := read_stat(holder)) else ""
            held.append(replace(one, holder=holder, holder_name=name))
    return tuple(held), tuple(stale)


def find_polled_locks(pid: int, threads: Sequence[Thread]) -> tuple[FileLock, ...]:
    """Return the locks of other processes that threads ask for again and again.

    The package filelock has a file open for an instant only (UnixFileLock._acquire): which file it
    is, its frames say; who has the lock, the kernel.
    """
    paths = [
        compile_path_pattern(_name_from_root(pid, path))
        for thread in threads
        if find_lock_poll(thread.frames)
        and not _awaits_file(thread.frames)
        and (path := find_told_lock_path(thread.frames))
    ]
    held = [lock for lock in find_all_held_locks() if lock.holder != pid] if paths else []
    return tuple(lock for lock in held if any(path.fullmatch(lock.path) for path in paths))


def _name_from_root(pid: int, path: str) -> str:
    """Return the whole name of a file that a process names from the folder in which it works."""
    if path.startswith("/"):
        return path
    try:
        return os.path.normpath(os.path.join(os.readlink(f"/proc/{pid}/cwd"), path))
    except OSError:
        return path


def _stat_for_process(pid: int, path: str) -> os.stat_result | None:
    """Return what a path is to a process: it may have a root or mounts of its own."""
    if not path:
        return None
    inside = f"/proc/{pid}/root{path}" if path.startswith("/") else f"/proc/{pid}/cwd/{path}"
    try:
        return os.stat(inside)
    except (OSError, ValueError):
        return None


def _file_age(about: os.stat_result | None) -> float | None:
    return None if about is None else round(max(0.0, time.time() - about.st_mtime), 3)


def read_wandb_logs(pid: int, links: Mapping[int, str]) -> tuple[LogTail, ...]:
    """Return the tails of W&B's own logs that a process has open."""
    named = {path: fd for fd, path in links.items() if _WANDB_LOG.search(path)}
    tails = (LogTail(path, read_last_lines(f"/proc/{pid}/fd/{fd}")) for path, fd in named.items())
    return tuple(tail for tail in tails if tail.lines)


def read_last_lines(path: str) -> tuple[str, ...]:
    """Return the last lines of a file, short and without secrets; () for what is none."""
    try:
        # The descriptor may be a FIFO's or a terminal's by now: wait for nobody, take no terminal.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with open(os.open(path, flags), "rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - _TAIL)
            file.seek(start)
            data = file.read(_TAIL)
    except (OSError, ValueError):
        return ()
    # Half a line may hold a secret without the name that gives it away.
    return parse_tail(data.partition(b"\n")[2] if start else data)


def parse_tail(data: bytes) -> tuple[str, ...]:
    """Return the last lines of a log, short and without secrets; before them the one that says
    which thread the traceback among them has ended (threading.excepthook): that may be longer.
    """
    lines = [line for line in data.decode(errors="replace").splitlines() if line.strip()]
    last, before = lines[-MOST_LOG_LINES:], lines[-_MOST_TRACEBACK:-MOST_LOG_LINES]
    heads = [line for line in before if line.startswith(THREAD_ENDED)]
    return tuple(mask_text(line.rstrip())[:MOST_LINE_CHARACTERS] for line in (*heads[-1:], *last))


_LINE_OF_OURS = re.compile(r"^(?:\x1b\[\d+m)?\[\d\d:\d\d:\d\d\.\d{3}\]\[\+")  # rank/lines.py
# Where torchrun lets a rank's output go, next to its error file
# (torch/distributed/elastic/multiprocessing/api.py, LogsSpecs).
_FILES_OF_TORCHRUN = ("stderr.log", "stdout.log")


@dataclass(frozen=True)
class PrintingRank:
    """A rank: its process, and the error file that its agent gave it."""

    rank: RankId
    pid: int | None
    error_file: str | None = None


def read_printed_lines(
    ranks: Iterable[PrintingRank], beside: Iterable[int] = ()
) -> dict[RankId, tuple[str, ...]]:
    """Return the last lines that ranks printed, without ours, by rank; none of a file that several
    ranks write to, or who has the descriptors `beside` of this process: whose line it is cannot be
    told.
    """
    files = {one.rank: find_output_files(one) for one in ranks}
    shared = Counter(identity for of_rank in files.values() for identity in of_rank)
    shared.update(identify_files(beside))
    found = {}
    for rank, of_rank in files.items():
        own = [path for identity, path in of_rank.items() if shared[identity] == 1]
        lines = tuple(
            n for path in own for n in read_last_lines(path) if not _LINE_OF_OURS.match(n)
        )
        if lines:
            found[rank] = lines
    return found


def identify_files(descriptors: Iterable[int]) -> set[tuple[int, int]]:
    """Return the identities (device and inode) of the files behind descriptors of this process."""
    found = set()
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            about = os.fstat(descriptor)
            found.add((about.st_dev, about.st_ino))
    return found


def find_output_files(one: PrintingRank) -> Mapping[tuple[int, int], str]:
    """Return where a rank's standard error and output go: identity and path of each file."""
    paths = [f"/proc/{one.pid}/fd/{number}" for number in (2, 1)] if one.pid else []
    if one.error_file:
        folder = os.path.dirname(one.error_file)
        paths += [os.path.join(folder, name) for name in _FILES_OF_TORCHRUN]
    found: dict[tuple[int, int], str] = {}
    for path in paths:
        try:
            about = os.stat(path)
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(about.st_mode):
            found.setdefault((about.st_dev, about.st_ino), path)
    return found
