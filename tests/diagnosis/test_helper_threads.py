"""The main thread waits for a thread of its own: why that thread stands still is the cause."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from hangbisect.base.process_facts import (
    Descriptor,
    Frame,
    Futex,
    Kernel,
    Look,
    PipeEnd,
    Syscall,
    Thread,
)
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.verdict_facts import Cause
from hangbisect.diagnosis.call_site import find_call
from hangbisect.diagnosis.process.frames import is_service_thread
from hangbisect.diagnosis.process.process_snapshot import merge_looks
from hangbisect.diagnosis.verdict import judge_job

from .made_up import ALL_REDUCE, SLEEP, job, look, rank, silent_peer, stack

HELPER = 912
WAITS = look(
    "Condition.wait STD/threading.py:327",
    "Future.result STD/concurrent/futures/_base.py:451",
    "load train.py:20",
    "<module> train.py:30",
)
POOL = ("_WorkItem.run STD/concurrent/futures/thread.py:58",)


def in_a_thread(one: Look) -> Look:
    """What a main thread does, done by a thread of a pool that the main thread waits for."""
    assert one.main is not None
    (kernel,) = one.kernel
    own = tuple(f for f in one.main.frames if f.name != "<module>")
    thread = Thread(HELPER, "ThreadPoolExecutor-0_0", False, False, (*own, *stack(*POOL)))
    task = Kernel(HELPER, "python", "S", kernel.wchan, kernel.syscall)
    assert WAITS.main is not None
    return replace(
        one, threads=(replace(WAITS.main), thread), kernel=(*WAITS.kernel, task), state="S"
    )


def cause_of(*looks: Look, children: tuple[Look, ...] = ()) -> Cause | None:
    assert {one.pid for one in looks} == {100}  # rank 0's
    first: RankFacts = rank(0, children=tuple((one,) for one in children))
    return judge_job(job(), [replace(first, looks=looks), rank(1, ALL_REDUCE)]).cause


def reads_its_own_pipe() -> tuple[Look, ...]:
    own = Descriptor(3, "pipe", "pipe:[7]", other_ends=(100,))
    return (look("read STD/os.py:1", "load train.py:9", call="read", descriptors=(own,)),)


def sleeps() -> tuple[Look, ...]:
    return (replace(SLEEP, at=100.0), replace(SLEEP, at=101.0))


def asks_a_silent_server() -> tuple[Look, ...]:
    peer = silent_peer()
    assert peer.socket is not None
    frames = ("SocketIO.readinto STD/socket.py:706", "load train.py:9")
    asks = look(*frames, call="recvfrom", descriptors=(peer,), sockets=(peer.socket,))
    return (asks, replace(asks, at=101.0))


def locks_twice() -> tuple[Look, ...]:
    """A mutex of C that its own thread has."""
    one = look("load train.py:9", call="futex")
    call = Syscall(0, "futex", (7, 128, 2, 0, 0, 0), futex=Futex(7, 2, 100, True))
    own = Frame("lookup", "/usr/lib/index.so", 0, native=True)
    assert one.main is not None
    frames = (own, *one.main.frames)
    thread = replace(one.main, frames=frames)
    return (replace(one, threads=(thread,), kernel=(replace(one.kernel[0], syscall=call),)),)


def test_a_lock_that_a_thread_has_itself_is_one_of_its_own() -> None:
    itself, (one,) = cause_of(*locks_twice()), map(in_a_thread, locks_twice())
    task = one.kernel[1]
    assert task.syscall is not None
    call = replace(task.syscall, futex=Futex(7, 2, HELPER, True))
    of_thread = cause_of(replace(one, kernel=(one.kernel[0], replace(task, syscall=call))))
    assert itself is not None
    assert of_thread is not None
    assert itself.id == of_thread.id == "self-deadlock"


@pytest.mark.parametrize("made", [reads_its_own_pipe, sleeps, asks_a_silent_server])
def test_the_cause_is_that_of_the_thread(made: object) -> None:
    assert callable(made)
    looks = made()
    itself, of_thread = cause_of(*looks), cause_of(*map(in_a_thread, looks))
    assert itself is not None
    assert of_thread is not None
    assert of_thread.id == itself.id


def test_where_nothing_is_known_of_the_thread_it_is_said_that_it_is_stuck() -> None:
    one = look("load train.py:9", "fetch train.py:19", call="ioctl")
    found = cause_of(in_a_thread(one), in_a_thread(replace(one, at=101.0)))
    assert found is not None
    assert found.id == "thread-stuck"


def test_a_dead_child_that_a_thread_waits_for_is_named() -> None:
    dead = look(pid=300, ppid=100, state="Z", call="", rung="proc", status=-signal.SIGKILL)
    own = Descriptor(3, "pipe", "pipe:[7]", other_ends=(100,))
    call = Syscall(0, "read", (3, 0, 0, 0, 0, 0), descriptors=(own,))
    (one,) = reads_its_own_pipe()
    one = in_a_thread(replace(one, kernel=(replace(one.kernel[0], syscall=call),)))
    found = cause_of(one, replace(one, at=101.0), children=(dead,))
    assert found is not None
    assert found.id == "child-died"


# A forked process that is done and has put into a queue what nobody reads (Python 3.11).
AT_EXIT = (
    "Thread._wait_for_tstate_lock STD/threading.py:1139",
    "Thread.join STD/threading.py:1119",
    "Queue._finalize_join STD/multiprocessing/queues.py:199",
    "Finalize.__call__ STD/multiprocessing/util.py:224",
    "_run_finalizers STD/multiprocessing/util.py:300",
    "_exit_function STD/multiprocessing/util.py:360",
    "BaseProcess._bootstrap STD/multiprocessing/process.py:317",
    "Popen._launch STD/multiprocessing/popen_fork.py:71",
    "BaseProcess.start STD/multiprocessing/process.py:121",
    "start_processes SP/torch/multiprocessing/spawn.py:280",
    "notebook_launcher SP/accelerate/launchers.py:261",
    "<module> train.py:43",
)
FEEDS = (
    "Connection._send STD/multiprocessing/connection.py:384",
    "Connection._send_bytes STD/multiprocessing/connection.py:421",
    "_ConnectionBase.send_bytes STD/multiprocessing/connection.py:200",
    "Queue._feed STD/multiprocessing/queues.py:250",
    "Thread.run STD/threading.py:982",
    "Thread._bootstrap STD/threading.py:1002",
)


def feeds_a_full_pipe() -> Look:
    ends = (PipeEnd(90, 5, "python"), PipeEnd(100, 5, "python", 90))
    full = Descriptor(6, "pipe", "pipe:[7]", other_ends=(90, 100), ends=ends)
    writes = Syscall(1, "write", (6, 0, 0, 0, 0, 0), descriptors=(full,))
    one = look(*AT_EXIT)
    thread = Thread(HELPER, "QueueFeederThread", False, False, stack(*FEEDS))
    task = Kernel(HELPER, "python", "S", "anon_pipe_write", writes)
    return replace(one, threads=(*one.threads, thread), kernel=(*one.kernel, task))


def test_a_queue_that_feeds_a_full_pipe_does_not_wait_for_an_item() -> None:
    """Its thread is in write(), and the process that is done waits for its end."""
    one = feeds_a_full_pipe()
    found = cause_of(one, replace(one, at=101.0))
    assert found is not None
    assert found.id == "pipe-unread"
    assert is_service_thread(Thread(1, "QueueFeederThread", False, False, stack(*FEEDS[3:])))
    assert not is_service_thread(one.threads[1])


def test_what_asks_for_the_next_request_of_a_stream_of_grpc_serves_the_channel() -> None:
    """The main thread waits for an answer, and this one for what the main thread is to send; where
    the job's own generator makes the requests, its thread is at work for the job.
    """
    asks = (
        "_consume_request_iterator.<locals>.consume_request_iterator SP/grpc/_channel.py:276",
        "Thread.run STD/threading.py:982",
    )
    waits = ("Condition.wait STD/threading.py:327", "Queue.get STD/queue.py:171", *asks)
    assert is_service_thread(Thread(1, "Thread-2 (_run)", False, False, stack(*waits)))
    own = ("read data.py:9", "requests train.py:20", *asks)
    assert not is_service_thread(Thread(1, "Thread-2 (_run)", False, False, stack(*own)))


def test_the_call_of_a_forked_process_is_none_of_its_parents() -> None:
    """The frames around the fork are those of whoever forked it."""
    view = merge_looks([feeds_a_full_pipe()])
    assert view is not None
    assert find_call(view, job(), "") == "multiprocessing.Queue.join_thread"


# ---- the threads of several ranks --------------------------------------------------------------

AT_AN_EVENT = (
    "Condition.wait STD/threading.py:327",
    "Event.wait STD/threading.py:629",
    "main train.py:60",
)


def waits_for_a_thread(*frames: str, native: bool) -> Look:
    """A main thread in Event.wait(), and a thread of its own in `frames`."""
    one = look(*AT_AN_EVENT)
    inside = Frame("c10d::Work::wait", "libtorch_cpu.so", 0, native=True)
    mine = (inside, *stack(*frames)) if native else stack(*frames)
    thread = Thread(HELPER, "averager", False, False, mine)
    return replace(one, threads=(*one.threads, thread))


@pytest.mark.parametrize("shown", [(0,), (1, 3), (0, 1, 3)])
def test_who_waits_for_a_thread_at_a_handle_waits_for_the_rank_whose_thread_is_elsewhere(
    shown: tuple[int, ...],
) -> None:
    """Work.wait() has no frame of Python's, and native frames are read of few ranks: where the
    thread of one stands, the threads of the others in the same line wait as well.
    """
    ranks = []
    for number in range(4):
        at_a_pipe = ("Popen._try_wait STD/subprocess.py:1917", "compressed train.py:38")
        frames = ("Averager.run train.py:46",) if number != 2 else at_a_pipe
        one = waits_for_a_thread(*frames, native=number in shown)
        ranks.append(rank(number, one, replace(one, at=103.0)))
    verdict = judge_job(job("late", 4), ranks)
    assert verdict.ranks.culprit == (2,)
    assert verdict.ranks.waiting == (0, 1, 3)
