"""Queues between processes or threads: both of two are full, or a task is never marked done."""

from __future__ import annotations

import signal
from dataclasses import replace

from hangbisect.base.process_facts import Futex, Look

from ..made_up import job, look, rank
from .scenes import Facts, Shows, causes_of
from .seen import FOREVER, SHARED, beside, first

JOINS = look(
    "Condition.wait STD/multiprocessing/synchronize.py:268",
    "JoinableQueue.join STD/multiprocessing/queues.py:331",
    "main serve.py:41",
    args=SHARED,
)
JOINS_THREADS = look(
    "Condition.wait STD/threading.py:327",
    "Queue.join STD/queue.py:90",
    "main serve.py:41",
    args=FOREVER,
)
STARTED = "BaseProcess.run STD/multiprocessing/process.py:108"


def takes(pid: int, *inner: str) -> Look:
    inner = inner or ("Queue.get STD/multiprocessing/queues.py:103", "work serve.py:24")
    return look(*inner, STARTED, pid=pid, ppid=100, call="read")


def fills(pid: int, file: str, *sharers: int, line: int = 24) -> Look:
    """A child that waits for room in a queue, whose semaphore others have too."""
    one = look(
        "Queue.put STD/multiprocessing/queues.py:89",
        f"work serve.py:{line}",
        STARTED,
        pid=pid,
        ppid=100,
        args=SHARED,
    )
    (main,) = one.kernel
    assert main.syscall is not None
    futex = Futex(0x7F00, 0, file=f"/dev/shm/sem.{file}", sharers=sharers)
    return replace(one, kernel=(replace(main, syscall=replace(main.syscall, futex=futex)),))


def tasks_not_marked_done() -> Facts:
    return job(world=1), [first(JOINS, takes(301), takes(302))]


def full_queues_both_ways() -> Facts:
    waits = look("Queue.get STD/multiprocessing/queues.py:103", "main serve.py:44", call="read")
    both = fills(301, "a", 100, 302), fills(302, "b", 100, 301, line=32)
    return job(world=1), [first(waits, *both)]


SHOWS: Shows = {
    "tasks-not-marked-done": tasks_not_marked_done,
    "full-queues-both-ways": full_queues_both_ways,
}


def test_a_task_may_be_marked_yet_while_a_worker_has_one_or_after_one_has_died() -> None:
    dead = look(pid=303, ppid=100, state="Z", call="", rung="proc", status=-signal.SIGKILL)
    unpickles = takes(302, "read serve.py:9", "Queue.get STD/multiprocessing/queues.py:103")
    for other in (dead, unpickles):
        found = causes_of((job(world=1), [first(JOINS, takes(301), other)]))
        assert "tasks-not-marked-done" not in found
    assert "tasks-not-marked-done" not in causes_of((job(world=1), [rank(0, JOINS)]))


def test_threads_that_take_tasks_are_told_as_well() -> None:
    inner = ("Condition.wait STD/threading.py:327", "Queue.get STD/queue.py:171", "work s.py:9")
    idle = beside(JOINS_THREADS, ("worker 0", inner), ("worker 1", inner))
    why = causes_of((job(world=1), [first(idle)]))["tasks-not-marked-done"].why
    assert "thread worker 0 and 1 more wait for the next one" in why
    busy = beside(JOINS_THREADS, ("worker 0", inner), ("worker 1", ("generate s.py:4",)))
    assert "tasks-not-marked-done" not in causes_of((job(world=1), [first(busy)]))


def test_two_that_wait_for_room_in_one_queue_wait_for_a_third() -> None:
    same = fills(301, "a", 100, 302), fills(302, "a", 100, 301)
    apart = fills(301, "a", 100), fills(302, "b", 100)
    for both in (same, apart):
        found = causes_of((job(world=1), [first(JOINS, *both)]))
        assert "full-queues-both-ways" not in found
    words = causes_of(full_queues_both_ways())["full-queues-both-ways"].why
    assert "work (serve.py:24) and work (serve.py:32)" in words
