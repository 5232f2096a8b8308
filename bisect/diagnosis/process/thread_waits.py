"""What a main thread waits for in its own process: the GIL, a lock, another thread, an event."""

from __future__ import annotations

import re

from ...base.process_facts import Frame, Thread
from ...base.verdict_facts import Wait
from .frames import (
    format_frame,
    format_innermost_frame,
    frame_owner,
    is_of_threading,
    unqualified_name,
)
from .loop_waits import find_loop_thread
from .process_snapshot import ProcessSnapshot

# CPython's own names: Modules/_threadmodule.c, Python/thread_pthread.h, Python/lock.c.
_PYTHON_LOCK = re.compile(
    r"(?:lock_PyThread_acquire_lock|PyThread_acquire_lock_timed|rlock_acquire|_PyMutex_Lock\w*)$"
)
_POOL_OF_THREADS = "/concurrent/futures/thread.py"
_ANYIO = re.compile(r"/anyio/_backends/\w+\.py$")
_FUTEX_TIMEOUT = 3  # which argument of futex() is its time limit


def find_gil_wait(view: ProcessSnapshot) -> Wait | None:
    """Return the wait for the GIL: another thread has it in every look, at the same place, and
    the main thread is in the timed wait by which Python asks for it.
    """
    holder = view.owner
    main = view.main
    if holder is None or main is None or holder.os_id == main.os_id:
        return None
    if view.call_name not in ("futex", ""):
        return None
    args = view.call.args if view.call else ()
    # A Python lock without a time limit gives the GIL up and sleeps in a futex without one.
    if len(args) > _FUTEX_TIMEOUT and args[_FUTEX_TIMEOUT] == 0:
        return None
    return Wait("gil", f"held by {_format_thread(holder)}")


def _format_thread(thread: Thread) -> str:
    place = format_innermost_frame(thread.frames)
    return f"thread {thread.name or thread.os_id}" + (f" in {place}" if place else "")


def runs_pool_task(thread: Thread) -> bool:
    """Return whether a thread of a pool is in a task (concurrent/futures/thread.py; of anyio's, in
    which FastAPI calls plain functions, WorkerThread.run takes and calls it).
    """
    python = [frame for frame in thread.frames if not frame.native]
    if any(f.file.endswith(_POOL_OF_THREADS) and f.name == "_WorkItem.run" for f in python):
        return True
    return is_of_anyio(thread) and any(frame_owner(frame, "") == "user" for frame in python)


def is_of_anyio(thread: Thread) -> bool:
    """Return whether a thread is one of anyio's pool (anyio/_backends/_asyncio.py)."""
    return any(_ANYIO.search(f.file) and f.name == "WorkerThread.run" for f in thread.frames)


def find_futex_wait(view: ProcessSnapshot) -> Wait:
    """Return what a main thread that sleeps in a futex waits for, by its innermost frames."""
    python = [f for f in view.frames if not f.native]
    # A function without a symbol is shown by its address, which differs from start to start.
    named = (f.name for f in view.frames if f.native and not f.name.startswith("0x"))
    native = next(named, "")
    if view.holds_gil:
        return Wait("gil", "a native call that holds the GIL waits for a futex")
    futex = view.call.futex if view.call is not None else None
    if futex is not None and futex.is_shared_semaphore:
        where = f" in {format_frame(python[0])}" if python else ""
        return Wait("lock", f"a semaphore of processes{where}")
    if not python:
        return Wait("futex", native or view.wchan)
    inner = python[0]
    others = [t for t in view.threads if t is not view.main]
    if is_of_threading(inner):
        return _find_event_wait(python, view) or _find_threading_wait(python, others)
    if any(f.name.rpartition(".")[0].endswith("_ModuleLock") for f in python[:2]):
        return Wait("lock", "the import lock of a module that another thread imports")
    if "multiprocessing/" in inner.file and unqualified_name(inner.name) in (
        "__enter__",
        "acquire",
        "wait",
    ):
        return Wait("lock", f"a semaphore in {format_frame(inner)}")
    if any(_PYTHON_LOCK.match(f.name) for f in view.frames if f.native):
        return Wait("lock", f"a Python lock in {format_frame(inner)}")
    place = " ".join(filter(None, [native, f"in {format_frame(inner)}"]))
    if futex is not None and futex.owner is not None:
        itself = futex.owner == view.look.pid
        whose = "its own thread" if itself else f"thread {futex.owner}"
        return Wait("lock", f"a mutex of {whose}, {place}")
    if frame_owner(inner, "") == "library" and not native:
        return Wait("futex", f"in {format_frame(inner)}")
    return Wait("futex", place)


def _find_event_wait(python: list[Frame], view: ProcessSnapshot) -> Wait | None:
    """Return the wait for an event that the only event loop of another thread sets, as a library
    has it that calls coroutines of its own (fsspec's sync).
    """
    asks = [unqualified_name(f.name) for f in python[:2]] == ["wait", "wait"]
    called = python[1].name.rpartition(".")[0] if asks else ""
    return find_loop_thread(view.look) if called.endswith("Event") else None


def _find_threading_wait(python: list[Frame], others: list[Thread]) -> Wait:
    names = {unqualified_name(f.name) for f in python[:2]}
    if names & {"join", "_wait_for_tstate_lock", "_shutdown"}:
        return Wait("thread", _format_threads(others))
    asked = next((f for f in python if not f.file.endswith("threading.py")), None)
    if asked is not None and asked.file.endswith("concurrent/futures/_base.py"):
        return Wait("thread", _format_threads(others) or "a thread that this process does not have")
    for caller in python[1:2]:
        called = caller.file.rpartition("/")[2], unqualified_name(caller.name)
        if called in _GIVEN:
            return Wait("lock", f"{_GIVEN[called]} in {format_frame(caller)}")
    return Wait("lock", f"a Python lock in {format_frame(python[0])}")


# What Condition.wait is for, by who called it: queue.Queue, threading.Semaphore.
_GIVEN = {
    ("queue.py", "put"): "room in a queue",
    ("queue.py", "get"): "an item of a queue",
    ("threading.py", "acquire"): "a slot of a semaphore",
}


def _format_threads(threads: list[Thread]) -> str:
    """Return in words the one thread there is, or how many."""
    if len(threads) == 1:
        return _format_thread(threads[0])
    return f"one of {len(threads)} threads" if threads else ""
