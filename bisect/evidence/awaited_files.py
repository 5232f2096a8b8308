"""Files that threads wait to disappear, because their being there is the lock: how old they are,
who has them open, and whom they name as their maker.

Whoever makes such a file mostly closes it at once, so that nobody has it open says little. Many
write their pid into it (filelock's SoftFileLock, Debian's lockfile-create): that process may be
gone, or the number may be another process's by now. On a network file system it may be one of
another machine.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import time
from collections.abc import Iterator, Sequence

from ..base.file_systems import NETWORK_FILE_SYSTEM, find_file_system
from ..base.masking import mask_text
from ..base.proc import LARGEST, read_stat
from ..base.process_facts import AwaitedFile, Kernel, Thread
from .descriptors import find_holders
from .polled_paths import find_polled_path, format_polling_place
from .syscall_arguments import read_outer_ids

_TICKS = os.sysconf("SC_CLK_TCK")
_LARGEST_NOTE = 256  # bytes: what names its maker is short
_NUMBER = re.compile(r"(?<![\w.])\d{1,7}(?![\w.])")
_WORD = re.compile(r"[A-Za-z][\w.-]+")
_LABELS = frozenset(["pid", "host", "hostname", "owner", "by", "locked", "process"])
_CLOCKS_APART = 2.0  # seconds by which a file's time may differ from that of its maker's start
# In which a loop waits between two tries; a futex with a time limit is Event.wait(0.1).
_PAUSES = frozenset(["nanosleep", "clock_nanosleep", "select", "pselect6", "restart_syscall"])


def find_awaited_files(
    pid: int, threads: Sequence[Thread], kernel: Sequence[Kernel]
) -> tuple[AwaitedFile, ...]:
    """Return the files that threads of a process wait to disappear and that are there. May block
    with the disks of these and of the sources.
    """
    polled = list(_list_polled(pid, threads, kernel))
    ends = find_holders([path for _, _, path, _ in polled])
    return tuple(
        _make_awaited_file(pid, thread, place, path, about, [end.pid for end in ends[path]])
        for thread, place, path, about in polled
    )


def _list_polled(
    pid: int, threads: Sequence[Thread], kernel: Sequence[Kernel]
) -> Iterator[tuple[int, str, str, os.stat_result]]:
    tasks = {task.tid: task for task in kernel}
    for thread in threads:
        task = tasks.get(thread.os_id or 0)
        if task is None or thread.os_id is None or not _pauses(task):
            continue
        found = find_polled_path(thread.frames)
        about = _stat_for_process(pid, found[1]) if found is not None else None
        if found is not None and about is not None:
            yield thread.os_id, format_polling_place(found[0]), found[1], about


def _pauses(task: Kernel) -> bool:
    call = task.syscall
    if call is None:
        return False
    return call.name in _PAUSES or (call.name == "futex" and call.timeout is not None)


def _stat_for_process(pid: int, path: str) -> os.stat_result | None:
    """Return what a path is to a process: it may have a root or mounts of its own."""
    try:
        return os.stat(_path_inside(pid, path))
    except (OSError, ValueError):
        return None


def _path_inside(pid: int, path: str) -> str:
    return f"/proc/{pid}/root{path}" if path.startswith("/") else f"/proc/{pid}/cwd/{path}"


def _make_awaited_file(
    pid: int, thread: int, place: str, path: str, about: os.stat_result, holders: Sequence[int]
) -> AwaitedFile:
    holder = next((one for one in holders if one != pid), None)
    held_by = read_stat(holder) if holder is not None else None
    maker = _read_maker(pid, path, about)
    lives = _lives(maker, about.st_mtime) if maker is not None else None
    named = read_stat(maker) if maker is not None and lives else None
    return AwaitedFile(
        mask_text(path),
        round(max(0.0, time.time() - about.st_mtime), 3),
        thread,
        place,
        holder=holder,
        holder_name=held_by.comm if held_by else "",
        maker=maker,
        maker_lives=lives,
        maker_name=named.comm if named else "",
        file_system=_read_network_file_system(pid, path),
    )


def _read_maker(pid: int, path: str, about: os.stat_result) -> int | None:
    """Return the pid that a file names, None for none that we would know."""
    if not stat.S_ISREG(about.st_mode) or not 0 < about.st_size <= _LARGEST_NOTE:
        return None
    if read_outer_ids(pid):
        return None  # a pid namespace: its numbers are not ours
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with open(os.open(_path_inside(pid, path), flags), "rb") as file:
            data = file.read(_LARGEST_NOTE + 1)
    except OSError:
        return None
    return parse_maker(data.decode(errors="replace"), socket.gethostname())


def parse_maker(text: str, host: str) -> int | None:
    """Return the pid that the text of a lock file names; None where it names none, or may name one
    of another machine than `host`.
    """
    if len(text) > _LARGEST_NOTE:
        return None
    words = {word for word in _WORD.findall(text) if word.lower() not in _LABELS}
    if words and host not in words:
        return None
    numbers = (int(number) for number in _NUMBER.findall(text.replace(host, " ")))
    return next((number for number in numbers if number > 1), None)


def _lives(maker: int, made: float) -> bool:
    """Return whether a process lives that had started when a file was made."""
    found = read_stat(maker)
    if found is None or found.state in "ZX":
        return False
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted + found.started / _TICKS <= made + _CLOCKS_APART


def _read_network_file_system(pid: int, path: str) -> str:
    """Return the kind of the file system that a path is on, "" for one of this machine alone."""
    try:
        with open(f"/proc/{pid}/mountinfo", errors="replace") as file:
            mounts = file.read(LARGEST)
        whole = os.path.join(os.readlink(f"/proc/{pid}/cwd"), path)
    except OSError:
        return ""
    kind = find_file_system(mounts, os.path.normpath(whole))
    return kind if NETWORK_FILE_SYSTEM.fullmatch(kind) else ""
