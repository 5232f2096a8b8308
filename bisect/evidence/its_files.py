"""What files tell of a process: how old its lock files are, which ones it waits for in vain, and
the tails of W&B's logs. Any of it may block with the disk: to be called aside.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ..facts import FileLock, Frame, LogTail, Thread
from ..rank.masking import MASK, is_secret, mask_text
from . import locks
from .descriptors import holders
from .frame_locals import text_of
from .sample import stat

MOST_LINES = 8
MOST_CHARACTERS = 400
_TAIL = 16384  # bytes: W&B's lines have some 200 characters, and may hold a whole configuration

# In wandb/run-*/logs (docs.wandb.ai, "Which files should I check when my code crashes?"); the core
# writes one of its own below ~/.cache/wandb/logs.
_WANDB_LOG = re.compile(r"/\.?wandb/.*/(?:debug|debug-internal|debug-core|core-debug[\w-]*)\.log$")
_HEADER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")
_ASSIGNED = re.compile(r"""(?P<name>[\w-]+)(?P<sign>["']?\s*[:=]\s*["']?)(?P<value>[^\s"',)}]+)""")


def with_ages(pid: int, found: Sequence[FileLock]) -> tuple[FileLock, ...]:
    """Return these locks with the age of their files, as far as it can be had."""
    return tuple(replace(one, age=_age(_stat(pid, one.path))) for one in found)


def awaited_files(threads: Sequence[Thread]) -> Iterator[str]:
    """Yield the files that threads wait to disappear: their being there is the lock.

    torch/utils/file_baton.py waits for `lock` in the folder of a build; SoftFileLock of the package
    filelock for the lock file itself.
    """
    for thread in threads:
        frames = [frame for frame in thread.frames if not frame.native]
        if path := _of_a_build(frames) or _of_a_soft_lock(frames):
            yield path


def _of_a_build(frames: Sequence[Frame]) -> str:
    waits = _frame(frames, r"torch/utils/file_baton\.py", "wait")
    build = _frame(frames, r"torch/utils/cpp_extension\.py", "_jit_compile")
    folder = text_of(dict(build.locals).get("build_directory", "")) if waits and build else ""
    return os.path.join(folder, "lock") if folder else ""


def _of_a_soft_lock(frames: Sequence[Frame]) -> str:
    for frame in frames[:6]:
        about = dict(frame.locals)
        if "SoftFileLock" in about.get("self", ""):
            named = (text_of(about.get(name, "")) for name in ("lock_filename", "canonical_path"))
            if path := next(filter(None, named), ""):
                return path
    return ""


def _frame(frames: Sequence[Frame], file: str, function: str) -> Frame | None:
    return next(
        (f for f in frames if re.search(file + "$", f.file) and f.name.endswith(function)), None
    )


def awaited(
    pid: int, threads: Sequence[Thread]
) -> tuple[tuple[FileLock, ...], tuple[FileLock, ...]]:
    """Return (lock files that a process of this machine has open, those that nobody has) of those
    that the process waits to disappear. Who made one keeps it open until it is done.
    """
    paths = dict.fromkeys(awaited_files(threads))
    there = {path: about for path in paths if (about := _stat(pid, path)) is not None}
    ends = holders(there)
    held: list[FileLock] = []
    stale: list[FileLock] = []
    for path, about in there.items():
        one = FileLock(path, about.st_ino, None, waiting=False, age=_age(about))
        holder = next((end.pid for end in ends[path] if end.pid != pid), None)
        if holder is None:
            stale.append(one)
        else:
            name = found.comm if (found := stat(holder)) else ""
            held.append(replace(one, holder=holder, holder_name=name))
    return tuple(held), tuple(stale)


def polled(pid: int, threads: Sequence[Thread]) -> tuple[FileLock, ...]:
    """Return the locks of other processes that threads ask for again and again.

    The package filelock has a file open for an instant only (UnixFileLock._acquire): which file it
    is, its frames say; who has the lock, the kernel.
    """
    paths = [_fits(path) for thread in threads if (path := _of_a_polled_lock(thread.frames))]
    held = [lock for lock in locks.all_held() if lock.holder != pid] if paths else []
    return tuple(lock for lock in held if any(path.fullmatch(lock.path) for path in paths))


def _of_a_polled_lock(frames: Sequence[Frame]) -> str:
    for frame in [frame for frame in frames if not frame.native][:3]:
        about = dict(frame.locals)
        kind = about.get("self", "")
        if "FileLock" in kind and "SoftFileLock" not in kind:
            return text_of(about.get("lock_filename", ""))
    return ""


def _fits(path: str) -> re.Pattern[str]:
    """Return what a path must look like of which parts are masked (a file's hash as its name)."""
    return re.compile("[^/]*".join(map(re.escape, path.split(MASK))))


def _stat(pid: int, path: str) -> os.stat_result | None:
    """Return what a path is to a process: it may have a root or mounts of its own."""
    if not path:
        return None
    inside = f"/proc/{pid}/root{path}" if path.startswith("/") else f"/proc/{pid}/cwd/{path}"
    try:
        return os.stat(inside)
    except (OSError, ValueError):
        return None


def _age(about: os.stat_result | None) -> float | None:
    return None if about is None else round(max(0.0, time.time() - about.st_mtime), 3)


def wandb_logs(pid: int, links: Mapping[int, str]) -> tuple[LogTail, ...]:
    """Return the tails of W&B's own logs that a process has open."""
    named = {path: fd for fd, path in links.items() if _WANDB_LOG.search(path)}
    tails = (LogTail(path, last_lines(f"/proc/{pid}/fd/{fd}")) for path, fd in named.items())
    return tuple(tail for tail in tails if tail.lines)


def last_lines(path: str) -> tuple[str, ...]:
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
    return tail_of(data.partition(b"\n")[2] if start else data)


def tail_of(data: bytes) -> tuple[str, ...]:
    """Return the last lines of a log, short and without secrets."""
    lines = [line for line in data.decode(errors="replace").splitlines() if line.strip()]
    return tuple(_masked(line.rstrip())[:MOST_CHARACTERS] for line in lines[-MOST_LINES:])


def _masked(line: str) -> str:
    return _ASSIGNED.sub(_without_secret, _HEADER.sub(rf"\1 {MASK}", mask_text(line)))


def _without_secret(found: re.Match[str]) -> str:
    if not is_secret(found["name"]):
        return found[0]
    return f"{found['name']}{found['sign']}{MASK}"
