"""Ctrl-C and SIGTERM as an event that trials look at, so that each ends what it started."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

AT_ONCE = 1.0  # seconds: who signals us and our group as well means one signal
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def stopping_by_signals() -> Iterator[threading.Event]:
    """Yield an event that is set by the first signal; a later one is a KeyboardInterrupt.

    Only in the main thread, as signal.signal() requires.
    """
    stopping = threading.Event()
    first = 0.0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if not stopping.is_set():
            first = time.monotonic()
            stopping.set()
        elif time.monotonic() - first > AT_ONCE:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
