"""Waits inside one process: for a thread, a Python lock, the GIL."""

from __future__ import annotations

import re

from ..facts import Frame, Thread, Wait
from .frames import owner, short, worded
from .view import Seen

# CPython's own names: Modules/_threadmodule.c, Python/thread_pthread.h, Python/lock.c.
_PYTHON_LOCK = re.compile(
    r"(?:lock_PyThread_acquire_lock|PyThread_acquire_lock_timed|rlock_acquire|_PyMutex_Lock\w*)$"
)
_FUTEX_TIMEOUT = 3  # which argument of futex() is its time limit


def gil_wait(view: Seen) -> Wait | None:
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
    return Wait("gil", f"held by {_named(holder)}")


def _named(thread: Thread) -> str:
    where = next((f" in {worded(f)}" for f in thread.frames if not f.native), "")
    return f"thread {thread.name or thread.os_id}{where}"


def futex_wait(view: Seen) -> Wait:
    """Return what a main thread that sleeps in a futex waits for, by its innermost frames."""
    python = [f for f in view.frames if not f.native]
    native = next((f.name for f in view.frames if f.native), "")
    if view.holds_gil:
        return Wait("gil", "a native call that holds the GIL waits for a futex")
    if not python:
        return Wait("futex", native or view.wchan)
    inner = python[0]
    others = [t for t in view.threads if t is not view.main]
    if inner.file.endswith("threading.py") or inner.file.startswith("<frozen threading"):
        return _threading(python, others)
    if any(f.name.rpartition(".")[0].endswith("_ModuleLock") for f in python[:2]):
        return Wait("lock", "the import lock of a module that another thread imports")
    if "multiprocessing/" in inner.file and short(inner.name) in ("__enter__", "acquire", "wait"):
        return Wait("lock", f"a semaphore in {worded(inner)}")
    if any(_PYTHON_LOCK.match(f.name) for f in view.frames if f.native):
        return Wait("lock", f"a Python lock in {worded(inner)}")
    if owner(inner, "") == "library" and not native:
        return Wait("futex", f"in {worded(inner)}")
    return Wait("futex", " ".join(filter(None, [native, f"in {worded(inner)}"])))


def _threading(python: list[Frame], others: list[Thread]) -> Wait:
    names = {short(f.name) for f in python[:2]}
    if names & {"join", "_wait_for_tstate_lock", "_shutdown"}:
        return Wait("thread", _those(others))
    asked = next((f for f in python if not f.file.endswith("threading.py")), None)
    if asked is not None and asked.file.endswith("concurrent/futures/_base.py"):
        return Wait("thread", _those(others) or "a thread that this process does not have")
    return Wait("lock", f"a Python lock in {worded(python[0])}")


def _those(threads: list[Thread]) -> str:
    """Return in words the one thread there is, or how many."""
    if len(threads) == 1:
        return _named(threads[0])
    return f"one of {len(threads)} threads" if threads else ""
