"""What signs read off processes, the workers and other children of a rank above all."""

from __future__ import annotations

import re
from collections.abc import Collection

from ...facts import Descriptor, Frame, Look, Thread
from ..frames import worded
from ..view import Seen
from .known import Found
from .scene import Scene, find_frame

_FORK = r"multiproc?ess(?:ing)?/popen_fork\.py"
_FUTEX_OPERATION, _FUTEX_TIME_LIMIT = 1, 3  # which arguments of futex() these are
_PRIVATE = 128  # FUTEX_PRIVATE_FLAG (linux/futex.h): only threads of the same process can wake it
# Whose a native frame is: by the path of its library, or of its source where py-spy knows it.
_CALLS_FOR_PYTHON = re.compile(r"/libffi[^/]*$|/_ctypes[./]|/_cffi_backend\.")
_OF_PYTHON = re.compile(
    r"/libpython[^/]*$|/bin/python[^/]*$|/Python-[\d.]+/|/lib-dynload/(?!_ctypes)"
)
_OF_LIBC = re.compile(r"/(?:libc|libpthread|libm|ld-linux[^/.]*|ld-musl[^/.]*)[.-][^/]*$")
# Packages with threads, and processes, of their own that send what a job logs.
EXPORTERS = r"/(?:opentelemetry|wandb|tqdm|sentry_sdk|prometheus_client|ddtrace|posthog)/\S+\.py$"
# Threads that exporters, progress bars and pools keep, some also in what is forked.
_SERVES = re.compile(
    r"/(?:threading|queue|selectors|socketserver)\.py$|/concurrent/futures/thread\.py$"
    r"|/multiprocessing/(?:queues|connection|synchronize|resource_sharer)\.py$"
    r"|/torch/_inductor/\S+\.py$|<frozen threading>"
    rf"|{EXPORTERS}"
)
_EXPORTS = re.compile(EXPORTERS)
_LOOPS = re.compile(r"/asyncio/\w+\.py$")  # W&B's thread runs an event loop
# Where a parent waits for what its workers do: (file, function).
_WAITS_FOR_WORKERS = (
    (r"torch/utils/data/dataloader\.py", r"_try_get_data|_get_data|_shutdown_workers|__next__"),
    (r"multiproc?ess(?:ing)?/pool\.py", r"get|wait|next|join|map|starmap|apply"),
    (r"datasets/utils/py_utils\.py", r"iflatmap_unordered"),
    (r"concurrent/futures/process\.py", r"\w+"),
    (r"joblib/parallel\.py", r"_retrieve|retrieve|__call__"),
)


def is_forked(view: Seen) -> bool:
    """Return True for a process that its parent forked and that never started a program."""
    by_fork = find_frame(view.frames, _FORK, "_launch") is not None
    return by_fork or (view.look.name.startswith("pt_data_worker") and not _is_spawned(view))


def _is_spawned(view: Seen) -> bool:
    return find_frame(view.frames, r"multiprocessing/(?:spawn|forkserver)\.py") is not None


def forked(scene: Scene) -> tuple[Seen, ...]:
    """Return the forked processes among the subject and its descendants."""
    own = (scene.view,) if scene.view is not None else ()
    return tuple(view for view in (*scene.workers, *own) if is_forked(view))


def called(look: Look) -> str:
    """Return a process in words: "pt_data_worker (4711)"."""
    return f"{look.name} ({look.pid})"


def inner(frames: tuple[Frame, ...]) -> Frame | None:
    """Return the innermost Python frame."""
    return next((frame for frame in frames if not frame.native), None)


def native_part(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Return the native frames inside the innermost Python frame, innermost first."""
    python = inner(frames)
    return frames if python is None else frames[: frames.index(python)]


def native_frame(frames: tuple[Frame, ...], function: str, library: str = "") -> Frame | None:
    """Return the innermost native frame, inside Python's, whose function's name or whose library's
    path has the pattern.
    """
    for frame in native_part(frames):
        if re.search(function, frame.name) or (library and re.search(library, frame.file)):
            return frame
    return None


def called_from_python(frames: tuple[Frame, ...]) -> Frame | None:
    """Return the native function that Python, or ctypes for it, called: one of a library rather
    than of the C library; None if all there is is Python's own.
    """
    named = [
        frame
        for frame in native_part(frames)
        if not frame.name.startswith("0x")
        and not _OF_PYTHON.search(frame.file)
        and not _CALLS_FOR_PYTHON.search(frame.file)
    ]
    own = [frame for frame in named if not _OF_LIBC.search(frame.file)]
    return next(iter(own), None) or next(reversed(named), None)


def through_ctypes(frames: tuple[Frame, ...]) -> bool:
    """Return True if the innermost Python frame called C through ctypes or cffi."""
    return any(_CALLS_FOR_PYTHON.search(frame.file) for frame in native_part(frames))


def of_libc(frame: Frame) -> bool:
    """Return True for a function of the C library."""
    return _OF_LIBC.search(frame.file) is not None


def in_words(frame: Frame) -> str:
    """Return a native function in words: "ncclCommInitRank (libnccl.so.2)"."""
    name = frame.name.partition("(")[0].partition("<")[0][:80]
    library = frame.file.rpartition("/")[2]
    return f"{name} ({library})" if library else name


def is_alone(view: Seen) -> bool:
    """Return True if a process has one thread, besides such as serve a library and wait."""
    serving = {thread.os_id for thread in view.threads if is_serving(thread)}
    return len([task for task in view.look.kernel if task.tid not in serving]) == 1


def is_serving(thread: Thread) -> bool:
    """Return True for a thread of a library that waits for work, or for time to pass: it frees
    nothing that anybody else waits for.
    """
    python = [frame for frame in thread.frames if not frame.native]
    own = any(_EXPORTS.search(frame.file) for frame in python)
    return bool(python) and all(
        _SERVES.search(frame.file) or (own and _LOOPS.search(frame.file)) for frame in python
    )


def sleeps_for_ever(view: Seen) -> bool:
    """Return True if the main thread is in a futex that only its own process can wake, without a
    time limit.
    """
    args = view.call.args if view.call is not None else ()
    if view.call_name != "futex" or len(args) <= _FUTEX_TIME_LIMIT or view.running:
        return False
    private = bool(args[_FUTEX_OPERATION] & _PRIVATE)
    return private and args[_FUTEX_TIME_LIMIT] == 0


def blocked(scene: Scene) -> tuple[Seen, ...]:
    """Return the subject and those of its descendants that it waits for, one after another."""
    if scene.view is None or scene.subject is None:
        return ()
    known = {view.look.pid: view for view in scene.workers}
    links = {e.source: e.target for e in (scene.graph.edges if scene.graph else ())}
    found = [scene.view]
    pid = _awaited_child(scene, known)
    while pid in known:
        found.append(known.pop(pid))
        pid = _pid(links.get(f"process {pid}", ""))
    return tuple(found)


def _awaited_child(scene: Scene, known: Collection[int]) -> int | None:
    """Return the descendant that the subject waits for: as the verdict has it, else whoever has the
    other end of a pipe or socket that its system call is about.
    """
    wait = scene.verdict.waits_for
    if wait is not None and wait.pid in known and wait.kind in ("process", "pipe", "socket"):
        return wait.pid
    for one in used(scene, scene.view) if scene.view is not None else ():
        ends = one.socket.peer_pids if one.socket is not None else one.other_ends
        for pid in ends:
            if pid in known:
                return pid
    return None


def _pid(name: str) -> int | None:
    """Return the pid in the name of a node of the graph, "process 4711"."""
    kind, _, number = name.partition(" ")
    return int(number) if kind == "process" and number.isdecimal() else None


def place(view: Seen) -> str:
    """Return in words where a process is: its innermost Python frame, else the system call."""
    frame = inner(view.frames)
    return worded(frame) if frame is not None else view.call_name or view.wchan or "unknown code"


def whose(scene: Scene, view: Seen) -> str:
    """Return a process of `blocked` in words: "it", or "its child pt_data_worker (4711)"."""
    own = scene.subject is not None and view.look.pid == scene.subject.pid
    return "it" if own else f"its child {called(view.look)}"


def used(scene: Scene, view: Seen) -> tuple[Descriptor, ...]:
    """Return the descriptors of its system call, with who has their other ends if any look knows:
    the last look may have had no time to find out.
    """
    now = view.call.descriptors if view.call is not None else ()
    known: dict[str, Descriptor] = {}
    for look in scene.all_looks(view.look.pid):
        main = next((k for k in look.kernel if k.tid == look.pid), None)
        for one in main.syscall.descriptors if main and main.syscall else ():
            if one.other_ends or (one.socket is not None and one.socket.peer_pids):
                known[one.path] = one
    return tuple(known.get(one.path, one) for one in now)


def parent_waits_for_workers(scene: Scene) -> Found | None:
    """A rank waits for what its workers make (DataLoader, Pool, datasets.map)."""
    for file, function in _WAITS_FOR_WORKERS:
        frame = scene.frame(file, function)
        if frame is not None:
            rank = scene.subject.rank if scene.subject else "?"
            words = f"rank {rank} waits for its workers in {worded(frame)}"
            return Found(words, {"rank": rank, "wait": worded(frame)})
    return None
