"""A middle rank waits for a lock that its killed child had.

Locks of multiprocessing are semaphores: when the process that has one dies, nobody gives it
back (python/cpython#82265; the out-of-memory killer likes children). It looks like a futex, and
no living process has anything to do with it.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def take(lock: Any, taken: Any) -> None:
    """Take the lock, say so, and be killed."""
    import os
    import signal

    lock.acquire()
    taken.set()
    os.kill(os.getpid(), signal.SIGKILL)


def no_tokenizer(given: Any) -> None:
    """Do without: the case is about the step after it."""


def load_model(given: Any) -> None:
    """Load with the help of a child, one at a time."""
    import multiprocessing

    from hangbisect.zoo.in_rank import rank_number

    if rank_number(given) == 2:
        started = multiprocessing.get_context("fork")
        lock, taken = started.Lock(), started.Event()
        child = started.Process(target=take, args=(lock, taken))
        child.start()
        taken.wait()
        child.join()
        with lock:
            pass


CASE = Case(
    id="J02",
    title="rank 2 of 4 waits for a semaphore that its dead child took",
    cluster="C12",
    reports=("python/cpython#82265",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(2,),
        waiting=(0, 1, 3),
        checkpoint="model",
        component=("model",),
        waits_for=("lock",),
        cause=("dead-owner",),
    ),
    ranks=4,
    uses={"tokenizer": "no_tokenizer", "model": "load_model"},
    options=("--until", "model"),
)
