"""Calls that may block for ever, made in threads that can be left behind.

Reading /proc/PID/cmdline, environ, maps or mem waits for a lock that a process in state D may
hold; starting a program waits for the disk that it lies on. A thread that waits so cannot be
ended, but it can be left: it is a daemon, and the wait is one that SIGKILL ends, so it never
keeps the monitor alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

# vfork (the default) holds our GIL until the child has found its program: on a frozen disk that
# would stop the whole monitor. fork does not. A documented switch of the subprocess module.
subprocess._USE_VFORK = False  # type: ignore[misc]  # it is Final, and made to be set

_left_behind: dict[Hashable, threading.Thread] = {}


async def aside(call: Callable[..., T], *args: Any, limit: float, key: Hashable | None = None) -> T:
    """Return call(*args), made in a daemon thread; raises TimeoutError after `limit` seconds.

    While an earlier call with the same `key` that ran out of time still hangs, it is refused at
    once (TimeoutError): a process that cannot be read costs one thread and not one a second.
    """
    if key is not None:
        before = _left_behind.get(key)
        if before is not None and before.is_alive():
            raise TimeoutError(f"an earlier call still waits: {key}")
        _left_behind.pop(key, None)
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def body() -> None:
        result, error = None, None
        try:
            result = call(*args)
        except Exception as e:
            error = e
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(deliver, result, error)

    thread = threading.Thread(target=body, name=f"aside {key or call}", daemon=True)
    thread.start()
    try:
        return await asyncio.wait_for(future, max(limit, 0.0))
    except TimeoutError:
        if key is not None and thread.is_alive():
            _left_behind[key] = thread
        raise


def within(limit: float, call: Callable[..., T], *args: Any) -> T:
    """Do the same without an event loop: blocks the caller, `limit` seconds at most."""
    box: list[tuple[T | None, Exception | None]] = []

    def body() -> None:
        try:
            box.append((call(*args), None))
        except Exception as e:
            box.append((None, e))

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(limit)
    if not box:
        raise TimeoutError(f"no answer within {limit:g} s")
    result, error = box[0]
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


@dataclass(frozen=True)
class Ran:
    """How a program ended; `status` is None if it had to be killed after its time."""

    status: int | None
    out: bytes
    err: str
    seconds: float


def run(command: Sequence[str], limit: float) -> Ran:
    """Run a program to its end, or kill it after `limit` seconds. Blocks: call it aside.

    Raises OSError if it cannot be started.
    """
    begun = time.monotonic()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C on the terminal is not for it
    )
    out, err, status = b"", b"", None
    try:
        out, err = process.communicate(timeout=limit)
        status = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            out, err = process.communicate(timeout=1.0)
    return Ran(status, out, err.decode(errors="replace"), time.monotonic() - begun)
