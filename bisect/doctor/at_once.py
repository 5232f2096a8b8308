"""Several calls that may block, all at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")


def at_once(limit: float, calls: Mapping[K, Callable[[], T]]) -> dict[K, T | Exception]:
    """Return what each call returned or raised, TimeoutError if it did not within `limit` seconds.

    Each has a daemon thread, which is left behind when its call does not come back.
    """
    done: dict[K, T | Exception] = {}

    def body(key: K, call: Callable[[], T]) -> None:
        try:
            done[key] = call()
        except Exception as error:
            done[key] = error

    threads = [
        threading.Thread(target=body, args=item, name=f"doctor {item[0]}", daemon=True)
        for item in calls.items()
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + limit
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    late = TimeoutError(f"no answer within {limit:g} s")
    seen = dict(done)
    return {key: seen.get(key, late) for key in calls}
