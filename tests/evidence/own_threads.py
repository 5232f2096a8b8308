"""Threads of this very process that stand in a system call: of these the kernel tells all."""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from hangbisect.base.process_facts import Kernel, Syscall
from hangbisect.evidence.descriptors import describe_descriptor, read_links
from hangbisect.evidence.kernel import read_thread
from hangbisect.evidence.process import ProcessMemory
from hangbisect.evidence.syscall_arguments import decode_syscall

T = TypeVar("T")
ME = os.getpid()
DEADLINE = 60.0  # seconds
LIBC = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def thread_in(
    name: str, call: Callable[[], object], release: Callable[[], object]
) -> Iterator[Kernel]:
    """Yield, as the kernel has it, a thread that `call` keeps in the system call `name`; at the end
    `release` lets it go on.
    """
    tids: queue.SimpleQueue[int] = queue.SimpleQueue()

    def body() -> None:
        tids.put(threading.get_native_id())
        call()

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    try:
        yield wait_for_call(tids.get(timeout=DEADLINE), name)
    finally:
        release()
        thread.join(DEADLINE)
        assert not thread.is_alive()


def wait_for_call(tid: int, name: str) -> Kernel:
    """Return a thread of this process once it sleeps in a system call."""
    end = time.monotonic() + DEADLINE
    found = None
    while time.monotonic() < end:
        found = read_thread(ME, tid, [])
        call = found.syscall if found is not None and found.state == "S" else None
        if found is not None and call is not None and call.name == name:
            return found
        time.sleep(0.002)
    raise AssertionError(f"{tid} is not in {name} but {found}")


def decode(thread: Kernel) -> Syscall:
    """Return the call of a thread of this process, decoded with the memory of this process."""
    assert thread.syscall is not None
    links = read_links(ME)
    with ProcessMemory(ME) as memory:
        return decode_syscall(
            thread.syscall,
            memory,
            lambda fd: describe_descriptor(ME, fd, links.get(fd), {}),
            ME,
        )


def wait_until(ask: Callable[[], T], is_so: Callable[[T], bool]) -> T:
    """Return what `ask` returns once that is so."""
    end = time.monotonic() + DEADLINE
    while not is_so(found := ask()):
        assert time.monotonic() < end, found
        time.sleep(0.002)
    return found
