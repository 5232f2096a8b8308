"""Threads, locks in memory and event loops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.process_facts import CodeLock, Descriptor, Frame, Futex, Look, Socket
from hangbisect.base.verdict_facts import Cause
from hangbisect.diagnosis.process.request_threads import put_stuck_request_first
from hangbisect.diagnosis.verdict import judge_job, judge_job_with_graph

from ..made_up import held, job, look, rank, silent_peer
from ..queues import receives, unix
from .scenes import Facts, Shows, causes_of, on
from .seen import FOREVER, LOCK, PYTHON, SHARED, TIMED, beside, first, native, with_futex, worker

TAKES = native(look("register registry.py:5", "<module> train.py:9", args=FOREVER), *LOCK)
GETS = native(
    look(
        "Condition.wait STD/threading.py:327",
        "Queue.get STD/queue.py:171",
        "Prefetched.__iter__ data.py:20",
        "<module> train.py:9",
        args=FOREVER,
    ),
    *LOCK,
)
RESULT = native(
    look(
        "Condition.wait STD/threading.py:327",
        "Future.result STD/concurrent/futures/_base.py:451",
        "load data.py:20",
        "<module> train.py:9",
        args=FOREVER,
    ),
    *LOCK,
)
NESTED = (
    "Condition.wait STD/threading.py:327",
    "Future.result STD/concurrent/futures/_base.py:451",
    "all_shards data.py:12",
    "_WorkItem.run STD/concurrent/futures/thread.py:58",
    "_worker STD/concurrent/futures/thread.py:83",
    "Thread.run STD/threading.py:982",
)


_READS = ("Condition.wait STD/threading.py:327", "Locks.read locks.py:29", "batch train.py:9")
_WRITES = ("Condition.wait STD/threading.py:327", "Locks.write locks.py:43", "refresh train.py:4")
_GETS = ("Condition.wait STD/threading.py:327", "Queue.get STD/queue.py:171", "take train.py:30")


def nobody_notifies(
    other: str = "0x7f01", more: tuple[str, ...] | None = None, main: tuple[str, ...] = _READS
) -> Facts:
    """The main thread reads a second time, and a writer waits for the end of the first."""
    one = native(look(*main, args=FOREVER), *LOCK)
    threads = [("refresher", _WRITES), *([("other", more)] if more else [])]
    one = beside(one, *threads, args=FOREVER)
    objects = ["0x7f01", other, "0x7f09"]
    threads_of = (
        replace(thread, frames=tuple(_with_self(frame, this) for frame in thread.frames))
        for thread, this in zip(one.threads, objects, strict=False)
    )
    return job(), [first(replace(one, threads=tuple(threads_of))), held(1)]


def _with_self(frame: Frame, this: str) -> Frame:
    waits = frame.name == "Condition.wait"
    return replace(frame, objects=(("self", this),)) if waits else frame


def test_a_condition_that_all_wait_for_is_told_from_two_conditions() -> None:
    found = causes_of(nobody_notifies())["nobody-notifies"]
    assert "The main thread in Locks.read (locks.py:29)" in found.why
    assert "thread refresher in Locks.write (locks.py:43)" in found.why
    assert "nobody-notifies" not in causes_of(nobody_notifies(other="0x7f02"))
    assert "nobody-notifies" not in causes_of(nobody_notifies(main=_GETS))


def test_a_thread_that_waits_for_something_else_may_notify_them() -> None:
    found = causes_of(nobody_notifies(more=_GETS))["nobody-notifies"]
    sure = causes_of(nobody_notifies())["nobody-notifies"].agreement
    assert found.agreement < sure
    spins = ("channel_spin SP/grpc/_channel.py:1440", "Thread.run STD/threading.py:982")
    facts, (one, other) = nobody_notifies(more=spins)
    (seen,) = one.looks
    *waits, hears = seen.kernel
    assert hears.syscall is not None
    call = replace(hears.syscall, name="epoll_wait")
    hearing = replace(seen, kernel=(*waits, replace(hears, syscall=call)))
    found = causes_of((facts, [replace(one, looks=(hearing,)), other]))["nobody-notifies"]
    assert found.agreement < sure, "what a server answers may notify them"


def test_threads_that_wait_for_one_event_wait_for_no_condition() -> None:
    """Each Event has a Condition of its own, and whoever sets it says nothing of who waits."""
    facts, (one, other) = nobody_notifies()
    (seen,) = one.looks
    event = Frame("Event.wait", "/usr/lib/python3.11/threading.py", 629)
    threads = []
    for thread in seen.threads:
        place = next(n for n, f in enumerate(thread.frames) if f.name == "Condition.wait") + 1
        this = replace(event, objects=(("self", "0x7f01"),))
        frames = (*thread.frames[:place], this, *thread.frames[place:])
        threads.append(replace(thread, frames=frames))
    waits = replace(one, looks=(replace(seen, threads=tuple(threads)),))
    assert "nobody-notifies" not in causes_of((facts, [waits, other]))


def wake_up(*ends: int) -> Descriptor:
    pair = Socket(9, "unix", state="ESTABLISHED", peer_pids=ends)
    return Descriptor(6, "socket", "socket:[9]", socket=pair)


def loop(*heard: Descriptor) -> Look:
    return look(
        "EpollSelector.select STD/selectors.py:468",
        "BaseEventLoop._run_once STD/asyncio/base_events.py:1884",
        "BaseEventLoop.run_forever STD/asyncio/base_events.py:607",
        "run STD/asyncio/runners.py:190",
        "load_tokenizer train.py:30",
        call="epoll_wait",
        descriptors=heard,
    )


def self_deadlock() -> Facts:
    return job(), [rank(0, with_futex(TAKES, owner=100)), held(1)]


def lock_order() -> Facts:
    other = ("refresh", ("refresh data.py:12", "Thread.run STD/threading.py:982"))
    both = beside(TAKES, other)
    return job(), [first(both), held(1)]


def test_a_coroutine_that_was_handed_to_a_loop_that_runs_no_more_is_told() -> None:
    """asyncio.run_coroutine_threadsafe(upload(), loop).result(), and the loop was stopped."""
    handed = ("asyncio.run_coroutine_threadsafe", "asyncio.run_coroutine_threadsafe().result")
    main = RESULT.threads[0]
    frames = tuple(replace(one, calls=handed) if one.name == "load" else one for one in main.frames)
    waits = replace(RESULT, threads=(replace(main, frames=frames),))
    why = causes_of((job(), [rank(0, waits), held(1)]))["dead-producer"].why
    assert "load (data.py:20) hands a coroutine to a loop that no thread runs any more" in why


def dead_producer() -> Facts:
    return job(), [rank(0, GETS), held(1)]


def test_who_puts_into_a_full_queue_waits_for_a_thread_that_takes() -> None:
    puts = native(
        look(
            "Condition.wait STD/threading.py:327",
            "Queue.put STD/queue.py:140",
            "RowWriter.put train.py:28",
            args=FOREVER,
        ),
        *LOCK,
    )
    found = causes_of((job(), [rank(0, puts), held(1)]))["dead-producer"]
    assert "is to take from its full queue" in found.why
    assert "is to give" in causes_of(dead_producer())["dead-producer"].why


WANTS_A_SLOT = native(
    look(
        "Condition.wait STD/threading.py:327",
        "Semaphore.acquire STD/threading.py:479",
        "Uploads.send train.py:31",
        "<module> train.py:53",
        args=FOREVER,
    ),
    *LOCK,
)


def slots_not_given_back() -> Facts:
    return job(), [rank(0, WANTS_A_SLOT), held(1)]


def pool_waits_for_itself() -> Facts:
    return job(), [first(beside(RESULT, ("ThreadPoolExecutor-0_0", NESTED))), held(1)]


def in_a_handler(line: int = 27) -> tuple[str, ...]:
    return (
        "Condition.wait STD/threading.py:327",
        "Condition.wait_for STD/threading.py:362",
        f"Scheduler.register train.py:{line}",
        "_call_behavior SP/grpc/_server.py:608",
        "_WorkItem.run STD/concurrent/futures/thread.py:58",
        "_worker STD/concurrent/futures/thread.py:83",
    )


def grpc_server(clients: int = 3, *more: tuple[str, ...]) -> Facts:
    """A server with two threads for calls, and so many clients."""
    waits = look("wait_for_termination SP/grpc/_server.py:1300", "main train.py:56", args=FOREVER)
    frames = [in_a_handler(), in_a_handler(), *more]
    one = beside(waits, *((f"ThreadPoolExecutor-0_{n}", f) for n, f in enumerate(frames)))
    listens = Socket(60, "tcp", "127.0.0.1:5000", "", "LISTEN")
    taken = [
        Socket(61 + n, "tcp", "127.0.0.1:5000", f"127.0.0.1:{40_000 + n}", "ESTABLISHED")
        for n in range(clients)
    ]
    return replace(job(), world_size=1, local_ranks=(0,)), [
        first(replace(one, sockets=(listens, *taken)))
    ]


def event_loop() -> Facts:
    return job(), [rank(0, loop(wake_up(100))), held(1)]


def dead_owner() -> Facts:
    takes = look(
        "SemLock.__enter__ STD/multiprocessing/synchronize.py:95",
        "load_model train.py:40",
        args=SHARED,
    )
    return job(), [rank(0, takes), held(1)]


def tasks_in_a_ring() -> Facts:
    (facts, (first_rank, *others)) = event_loop()
    looks = tuple(replace(one, task_ring=("writes", "reads", "writes")) for one in first_rank.looks)
    return facts, [replace(first_rank, looks=looks), *others]


SHOWS: Shows = {
    "nobody-notifies": nobody_notifies,
    "self-deadlock": self_deadlock,
    "lock-order": lock_order,
    "dead-producer": dead_producer,
    "slots-not-given-back": slots_not_given_back,
    "pool-waits-for-itself": pool_waits_for_itself,
    "request-threads-full": grpc_server,
    "event-loop": event_loop,
    "tasks-await-one-another": tasks_in_a_ring,
    "dead-owner": dead_owner,
}
ALL = frozenset(SHOWS)


def test_two_threads_that_wait_for_one_lock_take_it_in_no_order() -> None:
    """A third has it, and stands in the call of the same line."""

    def judge(*identities: str) -> set[str]:
        both = beside(TAKES, ("refresh", ("refresh data.py:12", "Thread.run STD/threading.py:982")))
        locks = (CodeLock("lock", identity) for identity in identities)
        threads = tuple(
            replace(one, frames=tuple(replace(f, takes=lock) for f in one.frames))
            for one, lock in zip(both.threads, locks, strict=True)
        )
        return {*causes_of((job(), [first(replace(both, threads=threads)), held(1)]))}

    assert "lock-order" in judge("data.py:lock", "data.py:other")
    assert "lock-order" not in judge("data.py:lock", "data.py:lock")


def test_a_lock_that_a_lone_thread_waits_for_is_its_own() -> None:
    assert "self-deadlock" in causes_of((job(), [rank(0, TAKES), held(1)]))


def test_with_another_thread_at_work_a_lock_may_be_freed() -> None:
    works = beside(TAKES, ("writer", ("write data.py:3", "Thread.run STD/threading.py:982")))
    found = causes_of((job(), [first(works), held(1)]))
    assert "self-deadlock" not in found


def test_a_mutex_of_another_thread_is_not_its_own() -> None:
    works = beside(TAKES, ("writer", ("write data.py:3", "Thread.run STD/threading.py:982")))
    found = causes_of((job(), [first(with_futex(works, owner=900)), held(1)]))
    assert "self-deadlock" not in found


def test_a_lock_that_the_thread_itself_has_taken_is_its_own_whoever_else_is_there() -> None:
    lock = CodeLock("lock", "registry.py:lock")
    innermost, outer = TAKES.threads[0].frames[-2:]
    held_by_itself = replace(
        TAKES,
        threads=(
            replace(
                TAKES.threads[0],
                frames=(
                    *TAKES.threads[0].frames[:-2],
                    replace(innermost, takes=lock),
                    replace(outer, inside=(lock,)),
                ),
            ),
        ),
    )
    works = beside(
        held_by_itself, ("writer", ("write data.py:3", "Thread.run STD/threading.py:982"))
    )
    found = causes_of((job(), [first(works), held(1)]))
    assert "self-deadlock" in found
    assert "lock-order" not in found


def test_a_thread_that_waits_for_work_in_a_simple_queue_waits_for_no_lock() -> None:
    """Its get() is C, and waits as a lock does (Modules/_queuemodule.c)."""
    idle = beside(TAKES, ("stream", ("Stream._work dev.py:14", "Thread.run STD/threading.py:982")))
    queue = ("_queue_SimpleQueue_get", "_queue.so"), ("PyThread_acquire_lock_timed", PYTHON)
    made = tuple(Frame(name, file, 0, native=True) for name, file in reversed(queue))
    side = replace(idle.threads[1], frames=(*made, *idle.threads[1].frames))
    waits = replace(idle, threads=(idle.threads[0], side))
    assert "lock-order" not in causes_of((job(), [first(waits), held(1)]))


def test_a_queue_that_a_living_thread_fills_has_a_producer() -> None:
    fed = beside(GETS, ("reader", ("read data.py:3", "Thread.run STD/threading.py:982")))
    assert "dead-producer" not in causes_of((job(), [first(fed), held(1)]))


# W&B 0.31 with opentelemetry.
WANDB_LOOP = (
    "EpollSelector.select STD/selectors.py:468",
    "BaseEventLoop._run_once STD/asyncio/base_events.py:1884",
    "Runner.run STD/asyncio/runners.py:118",
    "AsyncioManager._main SP/wandb/sdk/lib/asyncio_manager.py:270",
    "Thread.run STD/threading.py:982",
)


def test_a_thread_of_wandb_gives_nothing_to_anybody_but_wandb() -> None:
    thread = ("wandb-AsyncioManager-main", WANDB_LOOP)
    assert "dead-producer" in causes_of((job(), [first(beside(GETS, thread)), held(1)]))
    asks = look(
        "Future.result STD/concurrent/futures/_base.py:451",
        "AsyncioManager.run SP/wandb/sdk/lib/asyncio_manager.py:145",
        "<module> train.py:9",
        args=FOREVER,
    )
    found = causes_of((job(), [first(beside(asks, thread)), held(1)]))
    assert "dead-producer" not in found


def test_what_threads_of_rpc_give_has_a_producer_that_python_does_not_show() -> None:
    """All ranks are in shutdown(): threads of TensorPipe, in C++, set the Event (_all_gather)."""
    api = "SP/torch/distributed/rpc/api.py"
    leaves = look(
        "Condition.wait STD/threading.py:327",
        "Event.wait STD/threading.py:629",
        f"_all_gather {api}:257",
        f"shutdown {api}:382",
        "<module> train.py:9",
        args=FOREVER,
    )
    assert "dead-producer" not in causes_of((job(), [rank(0, leaves), rank(1, leaves)]))


def test_a_loop_of_its_own_is_no_exporters() -> None:
    thread = ("fsspecIO", (*WANDB_LOOP[:3], WANDB_LOOP[4]))
    assert "dead-producer" not in causes_of((job(), [first(beside(GETS, thread)), held(1)]))


def test_a_queue_that_a_worker_fills_has_a_producer() -> None:
    one = worker("Shards.__getitem__ data.py:9", call="read")
    assert "dead-producer" not in causes_of((job(), [first(GETS, one), held(1)]))


def test_a_wait_with_a_time_limit_gives_up_by_itself() -> None:
    timed = native(look("Queue.get STD/queue.py:180", "<module> train.py:9", args=TIMED), *LOCK)
    assert not ALL & set(causes_of((job(), [rank(0, timed), held(1)])))


def test_a_pool_with_a_thread_at_work_does_not_wait_for_itself() -> None:
    works = ("read data.py:3", *NESTED[3:])
    two = beside(RESULT, ("pool_0", NESTED), ("pool_1", works))
    assert "pool-waits-for-itself" not in causes_of((job(), [first(two), held(1)]))


def test_a_loop_that_listens_to_a_peer_waits_for_that_peer() -> None:
    peer = Socket(10, "tcp", peer="10.0.0.9:443", state="ESTABLISHED")
    heard = (wake_up(100), Descriptor(7, "socket", "socket:[10]", socket=peer))
    assert "event-loop" not in causes_of((job(), [rank(0, loop(*heard)), held(1)]))


def test_a_semaphore_of_the_machine_is_a_lock_without_an_owner() -> None:
    takes = look("load_model train.py:40", call="semtimedop")
    assert "dead-owner" in causes_of((job(), [rank(0, takes), held(1)]))


def test_with_a_living_worker_a_shared_lock_is_only_suspect() -> None:
    takes = look("SemLock.__enter__ STD/multiprocessing/synchronize.py:95", args=SHARED)
    one = worker("Shards.__getitem__ data.py:9", call="read")
    found = causes_of((job(), [first(takes, one), held(1)]))
    assert found["dead-owner"].agreement <= 0.6


def taken(*frames: str, file: str = "/dev/shm/sem.mp-t9x0a1 (deleted)") -> Look:
    """A process in acquire() of a lock of multiprocessing: the frame is that of whoever calls."""
    one = look(*frames, args=SHARED)
    (main,) = one.kernel
    assert main.syscall is not None
    call = replace(main.syscall, futex=Futex(0x7F00, 0, file=file))
    return replace(one, kernel=(replace(main, syscall=call),))


def test_acquire_without_with_has_no_frame_but_the_kernel_says_that_it_is_a_semaphore() -> None:
    found = causes_of((job(), [rank(0, taken("load_model train.py:40")), held(1)]))
    assert found["dead-owner"].agreement > 0.6
    assert "train.py:40" in found["dead-owner"].why


def test_a_futex_that_is_no_semaphore_of_processes_is_none() -> None:
    """pthread_join() waits in such a futex as well, and a ring in shared memory may."""
    for file in ("", "/dev/shm/torch_81_1"):
        one = taken("load_model train.py:40", file=file)
        assert "dead-owner" not in causes_of((job(), [rank(0, one), held(1)]))


def test_a_lock_in_whose_function_another_process_stands_has_an_owner() -> None:
    """It shares the semaphore, and reads below `with self.lock` in the same method."""
    file = "/dev/shm/sem.mp-t9x0a1 (deleted)"

    def judge(
        *frames: str, sharers: tuple[int, ...] = (100, 300), asleep: bool = False
    ) -> set[str]:
        takes = taken(
            "SemLock.__enter__ STD/multiprocessing/synchronize.py:95", "Tasks.get train.py:32"
        )
        (task,) = takes.kernel
        assert task.syscall is not None
        call = replace(task.syscall, futex=Futex(0x7F00, 0, file=file, sharers=sharers))
        takes = replace(takes, kernel=(replace(task, syscall=call),))
        one = replace(taken(*frames) if asleep else worker(*frames, call="read"), pid=300)
        return {*causes_of((job(), [first(takes, one), held(1)]))}

    assert "dead-owner" not in judge("Tasks.get train.py:36", "work train.py:43")
    assert "dead-owner" in judge("other train.py:90", "work train.py:43")
    assert "dead-owner" in judge("Tasks.get train.py:36", "work train.py:43", sharers=(100,))
    assert "dead-owner" in judge("Tasks.get train.py:32", "work train.py:43", asleep=True)


def test_so_has_one_for_which_a_child_of_the_rank_waits_where_its_sibling_stands() -> None:
    """Of two workers of a pool one waits for the lock, and the other reads with it."""
    file = "/dev/shm/sem.mp-t9x0a1 (deleted)"
    takes = "SemLock.__enter__ STD/multiprocessing/synchronize.py:95"
    waits = worker(takes, "Tasks.get train.py:32", "work train.py:43", pid=301, args=SHARED)
    (task,) = waits.kernel
    assert task.syscall is not None
    call = replace(task.syscall, futex=Futex(0x7F00, 0, file=file, sharers=(100, 300, 301)))
    waits = replace(waits, kernel=(replace(task, syscall=call),))
    reads = worker("Tasks.get train.py:36", "work train.py:43", pid=300, call="read")
    ends = (Descriptor(3, "pipe", "pipe:[7]", other_ends=(301, 300)),)
    gets = (
        "Connection._recv STD/multiprocessing/connection.py:395",
        "SimpleQueue.get STD/multiprocessing/queues.py:365",
    )
    hears = look(*gets, "Broker.apply train.py:61", call="read", pid=100, descriptors=ends)
    verdict = judge_job(job(world=1), [first(hears, waits, reads)])
    assert verdict.cause is None or verdict.cause.id != "dead-owner"
    alone = judge_job(job(world=1), [first(hears, waits)])
    assert alone.cause is not None
    assert alone.cause.id == "dead-owner"


def test_a_semaphore_that_counts_the_room_in_a_queue_is_no_lock() -> None:
    puts = taken("Queue.put STD/multiprocessing/queues.py:92", "load_model train.py:40")
    assert "dead-owner" not in causes_of((job(), [rank(0, puts), held(1)]))


def test_who_was_started_by_multiprocessing_shares_the_lock_with_others_that_live() -> None:
    frames = ("work train.py:40", "Process._bootstrap STD/multiprocessing/process.py:314")
    found = causes_of((job(), [rank(0, taken(*frames)), held(1)]))
    assert found["dead-owner"].agreement <= 0.6


# As py-spy shows multiprocessing.Event.wait, which waits in the semaphore of its condition.
WAITS_TO_BE_SET = (
    "Condition.wait STD/multiprocessing/synchronize.py:268",
    "Event.wait STD/multiprocessing/synchronize.py:356",
    "main train.py:11",
)
SPAWNED_CHILD = ("work train.py:5", "Process.run STD/multiprocessing/process.py:108")


def shared_with(one: Look, *pids: int) -> Look:
    """The same look, with the processes that have its semaphore too."""
    (main,) = one.kernel
    assert main.syscall is not None
    assert main.syscall.futex is not None
    futex = replace(main.syscall.futex, sharers=pids)
    return replace(one, kernel=(replace(main, syscall=replace(main.syscall, futex=futex)),))


def child(pid: int, *frames: str, call: str = "clock_nanosleep") -> Look:
    return replace(look(*frames, pid=pid, call=call), ppid=100)


def test_an_event_is_set_by_the_only_process_that_shares_it() -> None:
    waits = shared_with(taken(*WAITS_TO_BE_SET), 502)
    children = ((child(501, *SPAWNED_CHILD),), (child(502, *SPAWNED_CHILD),))
    facts = replace(rank(0, waits, waits), children=children)
    found = judge_job(job(world=1), [facts])
    assert found.waits_for is not None
    assert found.waits_for.pid == 502
    assert found.cause is None or found.cause.id != "dead-owner"


def test_nobody_has_an_event_so_nobody_died_with_it() -> None:
    """Of several that may set it nothing says which one was to."""
    waits = shared_with(taken(*WAITS_TO_BE_SET), 501, 502)
    children = ((child(501, *SPAWNED_CHILD),), (child(502, *SPAWNED_CHILD),))
    facts = replace(rank(0, waits, waits), children=children)
    assert "dead-owner" not in causes_of((job(world=1), [facts]))


def test_one_that_waits_for_the_same_event_does_not_set_it() -> None:
    waits = shared_with(taken(*WAITS_TO_BE_SET), 501, 502)
    also_waits = replace(shared_with(taken(*WAITS_TO_BE_SET), 100, 502), pid=501, ppid=100)
    children = ((also_waits,), (child(502, *SPAWNED_CHILD),))
    facts = replace(rank(0, waits, waits), children=children)
    found = judge_job(job(world=1), [facts])
    assert found.waits_for is not None
    assert found.waits_for.pid == 502


def test_a_rank_may_be_who_is_to_set_it() -> None:
    """Ranks that one program has spawned; that has it mapped as well, and is none of them."""
    waits = [
        replace(shared_with(taken(*WAITS_TO_BE_SET), 50, *pids))
        for pids in ((101, 102), (100, 102))
    ]
    ranks = [
        rank(0, waits[0], waits[0]),
        rank(1, replace(waits[1], pid=101), replace(waits[1], pid=101)),
    ]
    sleeps = child(102, *SPAWNED_CHILD)
    found = judge_job(job(world=3), [*ranks, rank(2, sleeps, sleeps)])
    assert (found.ranks.culprit, found.ranks.waiting) == ((2,), (0, 1))


def test_the_room_in_a_queue_comes_from_who_shares_it() -> None:
    """A writer waits in put(); the reader sleeps, and the program that made the queue waits."""
    puts = shared_with(
        taken("Queue.put STD/multiprocessing/queues.py:92", "act train.py:40"), 50, 101
    )
    reads = child(101, "learn train.py:20", *SPAWNED_CHILD[1:])
    found = judge_job(job(world=2), [rank(0, puts, puts), rank(1, reads, reads)])
    assert (found.ranks.culprit, found.ranks.waiting) == ((1,), (0,))


def test_a_lock_that_a_living_process_shares_may_be_had_by_it() -> None:
    takes = taken("load_model train.py:40")
    alone = causes_of((job(), [rank(0, shared_with(takes)), held(1)]))
    shared = causes_of((job(), [rank(0, shared_with(takes, 501)), held(1)]))
    assert alone["dead-owner"].agreement > 0.6
    assert shared["dead-owner"].agreement <= 0.6


def test_a_barrier_of_processes_is_given_by_a_process_and_not_by_a_thread() -> None:
    """multiprocessing.Barrier is a threading.Barrier on a Condition of processes."""

    def meets(args: tuple[int, ...]) -> Look:
        return native(
            look(
                "Condition.wait STD/multiprocessing/synchronize.py:268",
                "Condition.wait_for STD/multiprocessing/synchronize.py:320",
                "Barrier._wait STD/threading.py:732",
                "Barrier.wait STD/threading.py:697",
                "train train.py:26",
                args=args,
            ),
            *LOCK,
        )

    for args in (SHARED, FOREVER):
        assert "dead-producer" not in causes_of((job(), [rank(0, meets(args)), held(1)]))
    assert "dead-producer" in causes_of((job(), [rank(0, GETS), held(1)]))


def test_a_thread_of_a_pool_that_is_in_a_task_is_a_producer_whatever_the_task_is() -> None:
    """A task that is a function in C, such as time.sleep or a partial of one, has no frame."""
    run = ("Thread.run STD/threading.py:982", "Thread._bootstrap STD/threading.py:1002")
    work = ("_worker STD/concurrent/futures/thread.py:83", *run)
    task = ("_WorkItem.run STD/concurrent/futures/thread.py:58", *work)
    for busy in (task, ("Condition.wait STD/threading.py:327", *task), run):
        assert "dead-producer" not in causes_of(
            (job(), [first(beside(RESULT, ("ThreadPoolExecutor-0_0", busy))), held(1)])
        )
    assert "dead-producer" in causes_of(
        (job(), [first(beside(RESULT, ("ThreadPoolExecutor-0_0", work))), held(1)])
    )


# ---- a semaphore of several ranks ----------------------------------------------------------------


def takes_lock(name: str, file: str, *pids: int) -> Look:
    """A process that waits in `with NAME:` for a semaphore that these processes share."""
    one = shared_with(
        taken("SemLock.__enter__ STD/multiprocessing/synchronize.py:95", f"load {file}:35"), *pids
    )
    return _with_locks(one, takes=CodeLock(name, "0x7f11"))


def stands_inside(name: str, file: str, *frames: str, **more: Any) -> Look:
    """A process within `with NAME:`, in a function that the one in `file` has called."""
    return _with_locks(look(*frames, f"load {file}:36", **more), inside=(CodeLock(name, "0x7f22"),))


def _with_locks(one: Look, **locks: Any) -> Look:
    (thread,) = one.threads
    frames = (*thread.frames[:-1], replace(thread.frames[-1], **locks))
    return replace(one, threads=(replace(thread, frames=frames),))


IN_BARRIER = (
    "barrier SP/torch/distributed/distributed_c10d.py:5356",
    "_exception_logger.<locals>.wrapper SP/torch/distributed/c10d_logger.py:83",
    "load_cached train.py:23",
)


def test_a_lock_of_ranks_is_had_by_the_one_that_stands_inside_of_it() -> None:
    """Its barrier is for those that wait for its lock: a ring, which no dead owner made."""
    pids = (50, 100, 101, 102)  # the program that made it has it too
    waits = takes_lock("loading", "train.py", *pids)
    meets = stands_inside("loading", "train.py", *IN_BARRIER)
    ranks = [rank(0, waits, waits), rank(1, waits, waits), rank(2, meets, meets)]
    found, graph = judge_job_with_graph(job(world=3), ranks)
    assert found.waits_for is not None
    assert found.ranks.culprit == (0, 1, 2)
    assert graph.waiting >= {0, 1, 2}
    assert found.cause is not None
    assert found.cause.id == "deadlock"


def test_who_has_it_and_waits_for_something_else_is_to_blame() -> None:
    waits = takes_lock("self.slots", "train.py", 100, 101, 102)
    reads = stands_inside(
        "self.slots", "train.py", "fetch data.py:7", call="recvfrom", descriptors=(silent_peer(),)
    )
    ranks = [rank(0, waits, waits), rank(1, reads, reads), rank(2, waits, waits)]
    found = judge_job(job(world=3), ranks)
    assert (found.ranks.culprit, found.ranks.waiting) == ((1,), (0, 2))


@pytest.mark.parametrize(
    "other",
    [
        stands_inside("self._lock", "train.py", *IN_BARRIER),  # another lock
        stands_inside("loading", "cache.py", *IN_BARRIER),  # a name of another file
        look(*IN_BARRIER, "load train.py:40"),
    ],
)
def test_of_a_lock_that_a_living_rank_may_have_nobody_says_that_its_owner_ended(
    other: Look,
) -> None:
    waits = takes_lock("loading", "train.py", 100, 101, 102)
    ranks = [rank(0, waits, waits), rank(1, waits, waits), rank(2, other, other)]
    found = causes_of((job(world=3), ranks))
    assert "dead-owner" not in found


def test_where_all_that_share_it_sleep_in_it_its_owner_has_ended() -> None:
    waits = takes_lock("loading", "train.py", 100, 101, 102)
    found = causes_of((job(world=3), [rank(n, waits, waits) for n in range(3)]))
    assert "dead-owner" in found


def test_a_loop_that_takes_tasks_and_catches_what_they_raise_may_have_failed() -> None:
    """Nothing tells that there ever was a thread that was to give it something."""
    (thread,) = GETS.threads
    own = next(n for n, one in enumerate(thread.frames) if "data.py" in one.file)
    frames = list(thread.frames)
    frames[own] = replace(frames[own], catches="except Exception")
    one = replace(GETS, threads=(replace(thread, frames=tuple(frames)),))
    found = causes_of((job(), [rank(0, one), held(1)]))
    assert "dead-producer" not in found
    assert found["swallowed-exception"].level == "guess"


ENDED = ("Exception in thread updater:", "    self.run()", "KeyError: 'embedding'")
PUSHES = (
    "Condition.wait STD/threading.py:327",
    "Queue.get STD/queue.py:171",
    "Weights.push server.py:42",
    "Thread.run STD/threading.py:982",
)


def served(*wrote: str, name: str = "Thread-3", **more: Any) -> Facts:
    """A server of which a thread waits for what another thread is to put, and what it wrote."""
    one = beside(GETS, (name, PUSHES), **more)
    return job(), [replace(first(one), output=wrote), held(1)]


def test_a_thread_that_ended_by_an_exception_gives_nothing_though_others_wait_for_it_too() -> None:
    found = causes_of(served(*ENDED))
    assert next(iter(found)) == "dead-producer"
    assert "thread updater has ended" in found["dead-producer"].why


def test_a_thread_that_is_there_has_not_ended_and_one_at_work_may_give_it() -> None:
    assert "dead-producer" not in causes_of(served(*ENDED, name="updater"))
    assert "dead-producer" not in causes_of(served(*ENDED, call="clock_nanosleep"))
    assert "dead-producer" not in causes_of(served("KeyError: 'embedding'"))


def test_a_thread_at_work_may_give_its_slot_back() -> None:
    works = beside(
        WANTS_A_SLOT, ("upload_0", ("send store.py:3", "Thread.run STD/threading.py:982"))
    )
    assert "slots-not-given-back" not in causes_of((job(), [first(works), held(1)]))


def test_what_comes_out_of_a_queue_is_no_slot() -> None:
    assert "slots-not-given-back" not in causes_of(dead_producer())
    assert "dead-producer" not in causes_of(slots_not_given_back())


def test_who_takes_a_connection_out_of_a_pool_waits_for_one_that_was_not_given_back() -> None:
    for asks in (
        ("Queue.get STD/queue.py:171", "_get_conn LIB/urllib3/connectionpool.py:280"),
        (
            "Event.wait STD/threading.py:629",
            "wait_for_connection LIB/httpcore/_sync/connection_pool.py:35",
        ),
    ):
        stack = ("Condition.wait STD/threading.py:327", *asks, "Client.fetch train.py:43")
        takes = native(look(*stack, args=FOREVER), *LOCK)
        found = causes_of((job(), [rank(0, takes), held(1)]))
        assert "dead-producer" not in found
        assert "a connection of a pool" in found["slots-not-given-back"].why


ALL_IN_RESULT = (
    "Condition.wait STD/threading.py:327",
    "Future.result STD/concurrent/futures/_base.py:451",
    "handle serve.py:25",
    "_WorkItem.run STD/concurrent/futures/thread.py:58",
    "_worker STD/concurrent/futures/thread.py:83",
)


def test_an_event_loop_whose_own_threads_all_wait_for_results_is_kept_by_them() -> None:
    facts, (loop, *others) = event_loop()
    waits = beside(loop.looks[-1], ("handler_0", ALL_IN_RESULT), ("handler_1", ALL_IN_RESULT))
    found = causes_of((facts, [first(waits), *others]))
    assert next(iter(found)) == "pool-waits-for-itself"
    assert found["pool-waits-for-itself"].level == "guess"
    assert "all 2 threads of the pool wait" in " ".join(found["pool-waits-for-itself"].matched)
    free = ("Queue.get STD/queue.py:171", *ALL_IN_RESULT[4:])
    waits = beside(loop.looks[-1], ("handler_0", ALL_IN_RESULT), ("handler_1", free))
    assert "pool-waits-for-itself" not in causes_of((facts, [first(waits), *others]))


IN_A_CALLBACK = (
    *ALL_IN_RESULT[:3],
    "Future._invoke_callbacks STD/concurrent/futures/_base.py:340",
    "_ExecutorManagerThread.process_result_item STD/concurrent/futures/process.py:462",
)


def test_a_callback_of_a_pool_of_processes_keeps_the_results_from_itself() -> None:
    waits = look("Condition.wait STD/threading.py:327", "main train.py:28", args=FOREVER)
    found = causes_of((job(), [first(beside(waits, ("Thread-1", IN_A_CALLBACK))), held(1)]))
    assert next(iter(found)) == "pool-waits-for-itself"
    assert "callback handle (serve.py:25)" in " ".join(found["pool-waits-for-itself"].matched)
    assert found["pool-waits-for-itself"].level != "guess"
    idle = ("wait STD/multiprocessing/connection.py:947", IN_A_CALLBACK[-1])
    two = beside(waits, ("Thread-1", IN_A_CALLBACK), ("Thread-2", idle))
    found = causes_of((job(), [first(two), held(1)]))
    assert found["pool-waits-for-itself"].level == "guess", "the other pool may be meant"
    found = causes_of((job(), [first(beside(waits, ("Thread-1", idle))), held(1)]))
    assert "pool-waits-for-itself" not in found


def test_a_child_that_waits_for_its_rank_in_turn_gives_it_nothing() -> None:
    sends = receives(0, unix(100))
    engine = replace(sends, pid=300, ppid=100, name="engine")
    tasks = tuple(replace(task, tid=300 + n) for n, task in enumerate(engine.kernel))
    engine = replace(engine, kernel=tasks)
    engine = replace(engine, threads=(replace(engine.threads[0], os_id=300),))
    found = causes_of((job(), [first(GETS, engine), held(1)]))["dead-producer"]
    assert "engine (300) waits for it in turn, in ask (train.py:4)" in found.matched


def test_a_loop_whose_clients_all_wait_for_answers_hears_nobody_who_could_wake_it() -> None:
    """What a task was to give is lost: no connection tells that, but nothing else is to come. Ranks
    send to one another, and hear by that port from those that have not come.
    """
    facts, (loop, *others) = event_loop()
    server = replace(facts, world_size=1, local_ranks=(0,))
    one = loop.looks[-1]
    listens = Socket(60, "tcp", "127.0.0.1:8000", "", "LISTEN")
    client = Socket(61, "tcp", "127.0.0.1:8000", "127.0.0.1:5", "ESTABLISHED", received=9, sent=0)

    def served(
        *sockets: Socket, timeout: float | None = None, is_alone: bool = True
    ) -> dict[str, Cause]:
        main = one.kernel[0]
        assert main.syscall is not None
        named = (*main.syscall.descriptors, *(d for s in sockets for d in on(s, s.inode)))
        call = replace(main.syscall, descriptors=named, timeout=timeout)
        kernel = (replace(main, syscall=call), *one.kernel[1:])
        waits = replace(one, kernel=kernel, sockets=(*one.sockets, *sockets))
        if is_alone:
            return causes_of((server, [rank(0, waits)]))
        return causes_of((facts, [rank(0, waits), *others]))

    assert "event-loop" not in served(listens, client, is_alone=False)
    assert "1 client of it waits for an answer" in " ".join(
        served(listens, client)["event-loop"].matched
    )
    assert served(listens, client, timeout=70.0)["event-loop"].level == "guess"
    assert "event-loop" not in served(listens, client, timeout=0.5)
    answered = replace(client, sent=80)
    assert "event-loop" not in served(listens, answered)
    engine = Socket(62, "tcp", "127.0.0.1:9", "127.0.0.1:7000", "ESTABLISHED", received=9, sent=9)
    assert "event-loop" not in served(listens, client, engine)


def test_request_threads_are_full_only_where_all_wait_to_be_told_and_more_ask() -> None:
    found = causes_of(grpc_server())["request-threads-full"]
    assert "2 threads" in found.why
    assert "Scheduler.register (train.py:27)" in found.why
    anyio = (*in_a_handler()[:3], "WorkerThread.run SP/anyio/_backends/_asyncio.py:1124")
    assert "3 threads" in causes_of(grpc_server(4, anyio))["request-threads-full"].why
    idle = ("_worker STD/concurrent/futures/thread.py:81",)
    works = ("score train.py:90", *in_a_handler()[3:])
    for facts in (grpc_server(2), grpc_server(3, idle), grpc_server(4, works)):
        assert "request-threads-full" not in causes_of(facts)


def test_the_thread_by_which_a_server_is_looked_at_is_one_of_its_pool() -> None:
    facts, (server, *_) = grpc_server()
    (seen,) = server.looks
    by_request = first(put_stuck_request_first(seen))
    assert by_request.looks[0].main != seen.main
    assert "2 threads" in causes_of((facts, [by_request]))["request-threads-full"].why


def test_who_is_connected_and_does_something_else_has_not_asked() -> None:
    """Two of three workers have asked, and the third one sleeps: the pool may get more threads."""
    facts, (server, *_) = grpc_server()
    (seen,) = server.looks
    *others, last = seen.sockets
    connected = replace(seen, sockets=(*others, replace(last, peer_pids=(300,))))

    def ask(call: str) -> dict[str, Cause]:
        worker = look("run_worker train.py:30", pid=300, ppid=seen.pid, call=call)
        return causes_of((facts, [first(connected, worker)]))

    assert "request-threads-full" in ask("futex")
    assert "request-threads-full" not in ask("clock_nanosleep")
    worker = look("run_worker train.py:30", pid=300, ppid=seen.pid, call="clock_nanosleep")
    asks = beside(worker, ("Thread-1", ("_blocking SP/grpc/_channel.py:1162", "ask train.py:7")))
    assert "request-threads-full" in causes_of((facts, [first(connected, asks)]))


def test_a_main_thread_with_work_of_its_own_may_tell_those_that_wait() -> None:
    facts, (server, *_) = grpc_server()
    (seen,) = server.looks
    main, *pool = seen.threads
    loads = replace(main, frames=look("load train.py:60", "main train.py:56").threads[0].frames)
    works = causes_of((facts, [first(replace(seen, threads=(loads, *pool)))]))
    sure = causes_of(grpc_server())["request-threads-full"].agreement
    assert works["request-threads-full"].agreement < sure
