"""What a child or a thread is to its rank, by public names."""

from __future__ import annotations

from collections.abc import Sequence

from ..facts import Frame, Look, Thread

# By a frame that only such a process has: the end of the file's path, and the role.
_BY_FRAME = (
    ("torch/utils/data/_utils/worker.py", "DataLoader worker"),
    ("torch/_inductor/compile_worker/__main__.py", "compile worker"),
    ("multiprocessing/resource_tracker.py", "resource tracker"),
    ("multiprocessing/forkserver.py", "fork server"),
    ("multiprocessing/pool.py", "pool worker"),
    ("concurrent/futures/process.py", "pool worker"),
)
# torch names its workers so since 2.1 (torch/utils/data/_utils/worker.py, _worker_loop).
_BY_NAME = (("pt_data_worker", "DataLoader worker"),)
# Threads of pools and services that run nothing of the job while they wait.
_PLUMBING = (
    "/threading.py",
    "/queue.py",
    "/selectors.py",
    "/socketserver.py",
    "/concurrent/futures/thread.py",
    "/multiprocessing/pool.py",
    "/multiprocessing/queues.py",
    "/multiprocessing/connection.py",
    "/multiprocessing/synchronize.py",
    "/asyncio/base_events.py",
    "/asyncio/unix_events.py",
    "/asyncio/runners.py",
    "/tqdm/_monitor.py",
)


def role_of(look: Look) -> str:
    """Return what a descendant of a rank is: "DataLoader worker", else its program's name."""
    by_name = next((role for name, role in _BY_NAME if look.name.startswith(name)), "")
    if by_name:
        return by_name
    frames = look.main.frames if look.main else ()
    for file, role in _BY_FRAME:
        if any(frame.file.endswith(file) for frame in frames):
            return role
    return look.name or "a program without a name"


def is_idle(thread: Thread) -> bool:
    """Return True for a thread of a pool that waits for work: no frame of it is anybody's code."""
    python = [frame for frame in thread.frames if not frame.native]
    return bool(python) and not thread.owns_gil and _is_plumbing(python)


def _is_plumbing(frames: Sequence[Frame]) -> bool:
    return all(frame.file.endswith(_PLUMBING) or "<frozen" in frame.file for frame in frames)
