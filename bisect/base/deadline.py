"""Calls that may block for ever, made in threads that can be abandoned.

Reading /proc/PID/cmdline, environ, maps or mem waits for a lock that a process in state D may
hold; starting a program waits for the disk that it lies on. A thread that waits so cannot be
ended, but it can be abandoned: it is not joined at the end, and the wait is one that SIGKILL ends,
so it never keeps the monitor alive.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from .lazy_dataclass import dataclass

T = TypeVar("T")

MOST_OUTPUT = 1 << 25  # bytes of a program's output: a dump of all stacks is some 100 KiB

# vfork (the default) holds our GIL until the child has found its program: on a frozen disk that
# would stop the whole monitor. fork does not. A documented switch of the subprocess module.
subprocess._USE_VFORK = False  # type: ignore[misc]  # it is Final, and made to be set

_left_behind: dict[Hashable, threading.Event] = {}  # set once the call has come back


async def call_with_limit(
    call: Callable[..., T], *args: Any, limit: float | None, key: Hashable | None = None
) -> T:
    """Return call(*args), made in a thread of its own; raises TimeoutError after `limit` seconds
    (None: never), RuntimeError if there can be no thread.

    If an earlier call with the same `key` is still stuck, raise TimeoutError at once, so that an
    unreadable process costs one thread and not one a second.
    """
    if key is not None:
        before = _left_behind.get(key)
        if before is not None and not before.is_set():
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
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
            loop.call_soon_threadsafe(deliver, result, error)

    is_over = _start_thread(body)
    try:
        return await asyncio.wait_for(future, None if limit is None else max(limit, 0.0))
    except TimeoutError:
        if key is not None and not is_over.is_set():
            _left_behind[key] = is_over
        raise


def within(limit: float, call: Callable[..., T], *args: Any) -> T:
    """Return call(*args), without an event loop: blocks for at most `limit` seconds.

    Raises TimeoutError, or what the call raises.
    """
    box: list[tuple[T | None, Exception | None]] = []

    def body() -> None:
        try:
            box.append((call(*args), None))
        except Exception as e:
            box.append((None, e))

    _start_thread(body).wait(limit)
    if not box:
        raise TimeoutError(f"no answer within {limit:g} s")
    result, error = box[0]
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


def _start_thread(body: Callable[[], None]) -> threading.Event:
    """Call body() in a new thread; return what is set once it has ended.

    Not by threading.Thread: its start() waits, without a limit, for a word of the new thread, and
    one that finds no memory for its first steps ends without it.
    """
    is_over = threading.Event()

    def run() -> None:
        try:
            body()
        finally:
            is_over.set()

    _thread.start_new_thread(run, ())
    return is_over


@dataclass(frozen=True)
class Ran:
    """How a program ended; `status` is None if it had to be killed: after its time, or because it
    printed too much.
    """

    status: int | None
    out: bytes
    err: str
    seconds: float
    printed_too_much: bool = False


def run_command(command: Sequence[str], limit: float, given: bytes = b"") -> Ran:
    """Run a program; return how it ended. It is killed after `limit` seconds or MOST_OUTPUT bytes.
    `given` is what it can read, 4,096 bytes at the most. Blocks: call it with a limit.

    Raises OSError if it cannot be started, ValueError if too much is given.
    """
    begun = time.monotonic()
    source = _open_pipe(given) if given else subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            command,
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C on the terminal is not for it
        )
    finally:
        if given:
            os.close(source)
    status = None
    printed: dict[int, list[bytes]] = {}
    try:
        printed, is_all, size = _read_output(process, begun + limit)
        if is_all:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(max(0.0, begun + limit - time.monotonic()))
    finally:
        if status is None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    out, err = (b"".join(blocks) for blocks in printed.values())
    seconds = time.monotonic() - begun
    return Ran(status, out, err.decode(errors="replace"), seconds, size > MOST_OUTPUT)


def _open_pipe(given: bytes) -> int:
    """Return the reading end of a pipe that holds these bytes. Raises ValueError, OSError."""
    if len(given) > select.PIPE_BUF:
        raise ValueError(f"{len(given)} bytes are more than a pipe takes at once")
    source, way_in = os.pipe()
    os.write(way_in, given)
    os.close(way_in)
    return source


def _read_output(
    process: subprocess.Popen[bytes], until: float
) -> tuple[dict[int, list[bytes]], bool, int]:
    """Return what it prints, by descriptor, until it closes both, whether it did so before `until`,
    and how much it was.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    poll = select.poll()
    printed: dict[int, list[bytes]] = {}
    for pipe in (process.stdout, process.stderr):
        printed[pipe.fileno()] = []
        poll.register(pipe, select.POLLIN)
    size, is_open = 0, set(printed)
    while is_open and size <= MOST_OUTPUT:
        ready = poll.poll(max(0.0, until - time.monotonic()) * 1000)
        if not ready:
            return printed, False, size
        for descriptor, _ in ready:
            block = os.read(descriptor, 1 << 16)
            size += len(block)
            printed[descriptor].append(block)
            if not block:
                poll.unregister(descriptor)
                is_open.discard(descriptor)
    return printed, not is_open, size
