"""A word while a generation takes long: from a thread, for the one that generates is busy with it.

It is a word for people. Whether anything moves is judged from outside, by the watch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

AGAIN = 2.5  # times as long: 2 minutes, then 5


@contextmanager
def warning_of(seconds: float, warn: Callable[[float], None]) -> Iterator[None]:
    """Call warn(seconds so far) from a thread when the body has taken so long, and once more after
    AGAIN times as long.
    """
    done = threading.Event()

    def wait() -> None:
        if done.wait(seconds):
            return
        warn(seconds)
        if not done.wait(seconds * (AGAIN - 1)):
            warn(seconds * AGAIN)

    thread = threading.Thread(target=wait, name="overlong", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
