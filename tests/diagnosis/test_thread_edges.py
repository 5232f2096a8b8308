"""Threads as nodes of the wait-for graph: who has the lock that a thread waits for, as far as the
frames and the kernel tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.process_facts import (
    CodeLock,
    Descriptor,
    FileLock,
    Frame,
    Kernel,
    Look,
    Socket,
    Syscall,
    Thread,
)
from hangbisect.base.rank_facts import JobFacts, RankFacts
from hangbisect.diagnosis.proof_of_hang import find_proof_of_hang
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_job_with_graph

from .made_up import ALL_REDUCE, held, job, look, rank, stack

FOR_EVER = Syscall(202, "futex", (0x7F00, 0x189, 0, 0, 0, 0))
SLEEPS = Syscall(230, "clock_nanosleep", (1, 1, 0x7F, 0, 0, 0), timeout=900.0)
IN_FLOCK = Syscall(
    73, "flock", (4, 2, 0, 0, 0, 0), descriptors=(Descriptor(4, "file", "/tmp/gpu0.lock"),)
)
STATE = CodeLock("self._lock", "0x7f01._lock")
CACHE = CodeLock("CACHE", "stage.py:CACHE")
DEVICE = CodeLock("device(0)", "a lock on a file")
RUN = "Thread.run STD/threading.py:982"
FILE = FileLock("/tmp/gpu0.lock", 5, 100, "python", waiting=False)


def thread(
    tid: int,
    name: str,
    call: Syscall,
    *frames: str,
    takes: CodeLock | None = None,
    inside: Sequence[CodeLock] = (),
    this: str = "",
) -> tuple[Thread, Kernel]:
    """A thread; `takes` is of its innermost frame, `inside` of the last of the job's own, `this`
    the object of its Thread.
    """
    made = list(stack(*frames))
    made[0] = replace(made[0], takes=takes)
    own = max((n for n, f in enumerate(made) if f.file.startswith("/home")), default=0)
    made[own] = replace(made[own], inside=tuple(inside))
    if this:
        made[-1] = replace(made[-1], objects=(("self", this),))
    return Thread(tid, name, False, False, tuple(made)), Kernel(tid, "python", "S", "", call)


def joins(this: str = "0x7fa") -> tuple[Thread, Kernel]:
    """A main thread that waits for the end of another thread."""
    made = list(
        stack(
            "Thread._wait_for_tstate_lock STD/threading.py:1139",
            "Thread.join STD/threading.py:1119",
            "main train.py:26",
        )
    )
    made[1] = replace(made[1], objects=(("self", this),))
    return Thread(100, "MainThread", False, False, tuple(made)), Kernel(
        100, "python", "S", "", FOR_EVER
    )


LOADER = thread(
    201,
    "loader",
    IN_FLOCK,
    "device stage.py:6",
    "Stage.load stage.py:13",
    RUN,
    inside=[STATE],
    this="0x7fa",
)
STAGE = thread(
    202,
    "stage",
    FOR_EVER,
    "Stage.start stage.py:18",
    RUN,
    takes=STATE,
    inside=[DEVICE],
    this="0x7fb",
)
BEATS = thread(203, "beats", SLEEPS, "beat train.py:90", RUN, this="0x7fc")


def of(*threads: tuple[Thread, Kernel], pid: int = 100, **more: Any) -> Look:
    """A look at one process with these threads."""
    one = look("x train.py:1", pid=pid)
    return replace(
        one,
        threads=tuple(t for t, _ in threads),
        kernel=tuple(k for _, k in threads),
        **more,
    )


def on_rank(number: int, one: Look) -> RankFacts:
    made = rank(number, one)
    return replace(made, looks=(replace(one, pid=100 + number), replace(one, pid=100 + number)))


def alone(*threads: tuple[Thread, Kernel]) -> tuple[JobFacts, list[RankFacts]]:
    """One rank whose process has the lock on the file."""
    return job(world=1), [on_rank(0, of(*threads, holds=(FILE,)))]


def links(facts: tuple[JobFacts, list[RankFacts]]) -> set[tuple[str, str]]:
    return set(judge_job_with_graph(*facts)[1].links)


def rings(facts: tuple[JobFacts, list[RankFacts]]) -> list[tuple[str, ...]]:
    graph = judge_job_with_graph(*facts)[1]
    return [tuple(edge.source for edge in ring.edges) for ring in graph.deadlocks]


def test_a_circle_over_a_lock_of_pythons_and_one_on_a_file_is_a_ring_of_two_threads() -> None:
    facts = alone(joins(), LOADER, STAGE)
    verdict, graph = judge_job_with_graph(*facts)
    assert len(graph.deadlocks) == 1
    assert not graph.deadlocks[0].sure  # frames say who has the lock, not the kernel
    assert {edge.source for edge in graph.deadlocks[0].edges} == {
        "thread 201",
        "thread 202",
        "lock /tmp/gpu0.lock",
        "lock self._lock",
    }
    assert verdict.cause is not None
    assert (verdict.cause.id, verdict.cause.level) == ("deadlock", "fits")
    told = " ".join((verdict.cause.why, *verdict.cause.matched))
    for word in ("self._lock", "/tmp/gpu0.lock", "loader", "stage.py:13", "stage.py:18"):
        assert word in told
    assert find_proof_of_hang(verdict, Snapshot(facts[1]), graph) != ""


def test_whoever_is_joined_is_known_by_its_object() -> None:
    assert ("rank 0", "thread 201") in links(alone(joins(), LOADER, STAGE))
    assert ("rank 0", "thread 202") in links(alone(joins("0x7fb"), LOADER, STAGE))


def test_a_circle_is_found_whatever_the_main_thread_waits_in() -> None:
    waits = thread(
        100,
        "MainThread",
        FOR_EVER,
        "Condition.wait STD/threading.py:327",
        "Future.result STD/concurrent/futures/_base.py:451",
        "main train.py:26",
    )
    facts = alone(waits, LOADER, STAGE)
    verdict = judge_job_with_graph(*facts)[0]
    assert len(rings(facts)) == 1
    assert verdict.ranks.culprit == (0,)
    assert verdict.cause is not None
    assert verdict.cause.id == "deadlock"


def polls_by_filelock(timeout: str) -> tuple[Thread, Kernel]:
    call = Syscall(230, "clock_nanosleep", (1, 1, 0, 0, 0, 0), timeout=0.05)
    found, kernel = thread(
        201,
        "loader",
        call,
        "BaseFileLock.acquire SP/filelock/_api.py:344",
        "Stage.load stage.py:13",
        RUN,
        inside=[STATE],
        this="0x7fa",
    )
    told = (("lock_filename", f'"{FILE.path}"'), ("timeout", timeout))
    frames = (replace(found.frames[0], locals=told), *found.frames[1:])
    return replace(found, frames=frames), kernel


def test_the_package_filelock_asks_again_and_again_for_the_lock_on_a_file() -> None:
    assert len(rings(alone(joins(), polls_by_filelock("-1"), STAGE))) == 1
    # With a time limit it gives up by itself.
    assert rings(alone(joins(), polls_by_filelock("30.0"), STAGE)) == []


def test_the_chain_goes_once_around_the_ring() -> None:
    chain = judge_job_with_graph(*alone(joins(), LOADER, STAGE))[0].chain
    assert [edge.source for edge in chain] == [
        "rank 0",
        "thread 201",
        "lock /tmp/gpu0.lock",
        "thread 202",
        "lock self._lock",
    ]
    assert chain[-1].target == "thread 201"


def test_a_heartbeat_beside_it_does_not_hide_the_ring() -> None:
    # Frames show which of the threads has locked a file.
    assert len(rings(alone(joins(), LOADER, STAGE, BEATS))) == 1


def test_where_any_thread_may_have_the_lock_on_the_file_one_that_goes_on_frees_it() -> None:
    bare = thread(202, "stage", FOR_EVER, "Stage.start stage.py:18", RUN, takes=STATE, this="0x7fb")
    assert len(rings(alone(joins(), LOADER, bare))) == 1
    assert rings(alone(joins(), LOADER, bare, BEATS)) == []


def test_a_thread_that_has_the_lock_and_works_is_no_ring() -> None:
    works = thread(
        202, "stage", SLEEPS, "work stage.py:19", RUN, inside=[STATE, DEVICE], this="0x7fb"
    )
    waits = thread(
        201, "loader", FOR_EVER, "Stage.load stage.py:13", RUN, takes=STATE, this="0x7fa"
    )
    facts = alone(joins(), waits, works)
    assert rings(facts) == []
    assert ("lock self._lock", "thread 202") in links(facts)
    cause = judge_job_with_graph(*facts)[0].cause
    assert cause is None or cause.id not in ("deadlock", "lock-order")


def test_a_thread_in_condition_wait_has_given_its_lock_back() -> None:
    asleep = thread(
        202,
        "stage",
        FOR_EVER,
        "Condition.wait STD/threading.py:327",
        "Stage.start stage.py:18",
        RUN,
        inside=[STATE],
        this="0x7fb",
    )
    waits = thread(
        201, "loader", FOR_EVER, "Stage.load stage.py:13", RUN, takes=STATE, this="0x7fa"
    )
    assert ("lock self._lock", "thread 202") not in links(alone(joins(), waits, asleep))


@pytest.mark.parametrize(
    ("waits_in", "has_it"),
    [
        (("Condition.wait STD/threading.py:327", "Event.wait STD/threading.py:629"), True),
        (("wait STD/threading.py:327", "wait STD/threading.py:629"), True),  # without classes
        (
            (
                "Condition.wait STD/threading.py:327",
                "Condition.wait_for STD/threading.py:371",
                "Barrier._wait STD/threading.py:741",
                "Barrier.wait STD/threading.py:700",
            ),
            True,
        ),
        (
            ("Condition.wait STD/threading.py:327", "Condition.wait_for STD/threading.py:371"),
            False,
        ),
        (("wait STD/threading.py:327",), False),
    ],
)
def test_only_who_waits_for_a_condition_gives_its_lock_back(
    waits_in: tuple[str, ...], has_it: bool
) -> None:
    """An Event and a Barrier have conditions of their own: the lock around them is kept."""
    made = thread(202, "stage", FOR_EVER, *waits_in, "Stage.start stage.py:18", RUN, inside=[STATE])
    waits = thread(
        201, "loader", FOR_EVER, "Stage.load stage.py:13", RUN, takes=STATE, this="0x7fa"
    )
    drawn = links(alone(joins(), waits, made))
    assert (("lock self._lock", "thread 202") in drawn) == has_it


def test_a_lock_of_another_object_or_of_an_unknown_one_joins_nobody() -> None:
    for identity in ("0x7f02._lock", ""):
        other = thread(
            202,
            "stage",
            FOR_EVER,
            "Stage.start stage.py:18",
            RUN,
            takes=CodeLock("self._lock", identity),
            inside=[DEVICE],
        )
        assert rings(alone(joins(), LOADER, other)) == []


def test_two_locks_of_pythons_in_two_orders_stay_that_cause_and_name_both() -> None:
    main = thread(100, "MainThread", FOR_EVER, "load train.py:5", takes=STATE, inside=[CACHE])
    other = thread(201, "refresh", FOR_EVER, "fill train.py:9", RUN, takes=CACHE, inside=[STATE])
    facts = alone(main, other)
    assert rings(facts) == [("rank 0", "lock self._lock", "thread 201", "lock CACHE")]
    cause = judge_job_with_graph(*facts)[0].cause
    assert cause is not None
    assert (cause.id, cause.level) == ("lock-order", "fits")
    assert "self._lock" in cause.why
    assert "CACHE" in cause.why


def test_a_lock_of_multiprocessings_in_the_circle_is_a_lock_as_any_other() -> None:
    shared = CodeLock("slots", "0x7f0a")
    main = thread(
        100,
        "MainThread",
        FOR_EVER,
        "SemLock.__enter__ STD/multiprocessing/synchronize.py:95",
        "load train.py:5",
        inside=[STATE],
    )
    frames: list[Frame] = list(main[0].frames)
    frames[1] = replace(frames[1], takes=shared)
    main = replace(main[0], frames=tuple(frames)), main[1]
    other = thread(201, "refresh", FOR_EVER, "fill train.py:9", RUN, takes=STATE, inside=[shared])
    assert rings(alone(main, other)) == [("rank 0", "lock slots", "thread 201", "lock self._lock")]


# ---- over two processes ----------------------------------------------------------------------


def two_ranks(*holders: tuple[Thread, Kernel]) -> tuple[JobFacts, list[RankFacts]]:
    """Rank 1 waits in flock() for what rank 0 has, in a barrier's place; rank 0 has `holders`."""
    has = FileLock("/tmp/gpu0.lock", 5, 100, "python", waiting=False)
    mine = FileLock("/tmp/index.lock", 6, 101, "python", waiting=False)
    wants = look(
        "load train.py:7",
        call="flock",
        pid=101,
        locks=(replace(has, waiting=True),),
        holds=(mine,),
    )
    return job(), [on_rank(0, of(*holders, holds=(has,))), on_rank(1, wants)]


def index_wanted(tid: int, name: str, *inside: CodeLock, this: str = "") -> tuple[Thread, Kernel]:
    call = replace(IN_FLOCK, descriptors=(Descriptor(4, "file", "/tmp/index.lock"),))
    return thread(tid, name, call, "index train.py:40", RUN, inside=inside, this=this)


def test_a_circle_over_two_processes_goes_through_the_threads() -> None:
    loader = index_wanted(201, "loader", STATE, this="0x7fa")
    found = rings(two_ranks(joins(), loader, STAGE))
    assert len(found) == 1
    assert set(found[0]) == {
        "rank 1",
        "lock /tmp/gpu0.lock",
        "thread 202",
        "lock self._lock",
        "thread 201",
        "lock /tmp/index.lock",
    }


def test_a_process_one_of_whose_threads_may_have_the_lock_and_works_is_in_no_ring() -> None:
    # Rank 0 waits for what rank 1 has, and another thread of it has what rank 1 waits for.
    main = index_wanted(100, "MainThread")
    works = thread(202, "writer", SLEEPS, "write train.py:50", RUN, inside=[DEVICE])
    assert rings(two_ranks(main, works)) == []
    assert len(rings(two_ranks(main))) == 1


def test_a_rank_in_a_collective_is_left_as_it_was() -> None:
    facts = job(), [on_rank(0, of(joins(), LOADER, STAGE, holds=(FILE,))), rank(1, ALL_REDUCE)]
    verdict = judge_job_with_graph(*facts)[0]
    assert verdict.ranks.culprit == (0,)
    assert verdict.ranks.waiting == (1,)
    assert judge_job_with_graph(job(), [held(0), held(1)])[1].deadlocks == ()


def test_a_thread_that_has_the_lock_and_waits_for_an_event_is_stuck() -> None:
    """No ring can be shown: who is to set the event no frame tells."""
    main = thread(100, "MainThread", FOR_EVER, "Rows.__reduce__ train.py:26", takes=STATE)
    keeps = thread(
        202,
        "flusher",
        FOR_EVER,
        "Condition.wait STD/threading.py:327",
        "Event.wait STD/threading.py:629",
        "Rows.flush train.py:21",
        RUN,
        inside=[STATE],
    )
    cause = judge_job_with_graph(*alone(main, keeps))[0].cause
    assert cause is not None
    assert cause.id == "thread-stuck"
    assert "thread flusher" in cause.why
    assert "Rows.flush (train.py:21)" in cause.why


PROPERTY = CodeLock("self.lock", "0x7f02.lock")
_WORKS = ("_WorkItem.run STD/concurrent/futures/thread.py:58", RUN)


def waits_for_a_result(*inside: CodeLock) -> tuple[Thread, Kernel]:
    """A main thread that waits for a Future below a property that it computes."""
    frames = (
        "Condition.wait STD/threading.py:327",
        "Future.result STD/concurrent/futures/_base.py:451",
        "Shard.offsets train.py:28",
    )
    return thread(100, "MainThread", FOR_EVER, *frames, inside=inside)


def in_a_pool(tid: int, takes: CodeLock | None) -> tuple[Thread, Kernel]:
    return thread(tid, f"pool_{tid}", FOR_EVER, "offsets train.py:33", *_WORKS, takes=takes)


def test_who_waits_for_the_result_of_a_thread_that_wants_its_lock_is_in_a_ring() -> None:
    """functools.cached_property has one lock for all objects, up to Python 3.11."""
    facts = alone(waits_for_a_result(PROPERTY), in_a_pool(201, PROPERTY))
    assert rings(facts) != []
    verdict, graph = judge_job_with_graph(*facts)
    assert verdict.cause is not None
    assert verdict.cause.id == "deadlock"
    assert find_proof_of_hang(verdict, Snapshot(facts[1]), graph) != ""


def test_of_several_threads_that_work_none_is_known_to_be_the_awaited_one() -> None:
    waits = waits_for_a_result(PROPERTY)
    assert rings(alone(waits, in_a_pool(201, PROPERTY), in_a_pool(202, None))) == []


def test_a_thread_of_a_pool_that_wants_a_lock_of_somebody_else_closes_no_ring() -> None:
    other = thread(203, "other", SLEEPS, "load train.py:50", RUN, inside=[PROPERTY])
    assert rings(alone(waits_for_a_result(), in_a_pool(201, PROPERTY), other)) == []


def _asks_for_a_row(owner: int) -> Look:
    """Its main thread waits for a thread of a pool, which reads from a Unix socket of `owner`."""
    socket = Socket(
        9, "unix", peer="rows.sock", state="ESTABLISHED", peer_pids=(owner,), peer_names=("python",)
    )
    reads = Syscall(
        45,
        "recvfrom",
        (5, 0, 64, 0, 0, 0),
        descriptors=(Descriptor(5, "socket", "", socket=socket),),
    )
    pool = ("_WorkItem.run STD/concurrent/futures/thread.py:58", "_worker STD/x.py:9")
    fetch = thread(907, "fetch_0", reads, "_fetch train.py:45", *pool)
    waits = (
        "Condition.wait STD/threading.py:327",
        "Event.wait STD/threading.py:629",
        "wait STD/concurrent/futures/_base.py:305",
        "gathered train.py:51",
    )
    main = thread(102, "MainThread", FOR_EVER, *waits, "<module> train.py:80")
    return of(main, fetch, pid=102, sockets=(socket,))


def _refreshes(*threads: tuple[Thread, Kernel]) -> Look:
    """Its main thread is in a collective, and has taken a lock before."""
    meets = "all_reduce SP/torch/distributed/distributed_c10d.py:3252"
    main = thread(101, "MainThread", FOR_EVER, meets, "refresh train.py:57", inside=[STATE])
    return of(main, *threads, pid=101)


def test_a_thread_that_asks_another_rank_is_a_part_of_the_ring() -> None:
    """Rank 2 waits for its thread, which asks rank 1; there a thread waits for a lock of the main
    one, which waits in a collective for rank 2.
    """
    rows = thread(908, "rows", FOR_EVER, "_serve train.py:40", RUN, takes=STATE)
    ranks = [rank(0, ALL_REDUCE), on_rank(1, _refreshes(rows)), on_rank(2, _asks_for_a_row(101))]
    verdict, _ = judge_job_with_graph(job(world=3), ranks)
    assert verdict.cause is not None
    assert verdict.cause.id == "deadlock"
    assert {*verdict.ranks.culprit} <= {1, 2}
    assert 0 in verdict.ranks.waiting


def test_without_a_thread_that_waits_there_both_are_named_and_no_ring_is_told() -> None:
    """Whoever answers on rank 1 may be about to."""
    ranks = [rank(0, ALL_REDUCE), on_rank(1, _refreshes()), on_rank(2, _asks_for_a_row(101))]
    verdict, _ = judge_job_with_graph(job(world=3), ranks)
    assert {*verdict.ranks.culprit} <= {1, 2}
    assert verdict.cause is None or verdict.cause.level != "seen"


def test_one_that_asks_a_rank_outside_of_the_ring_is_to_blame_for_what_it_waits_for() -> None:
    """The process that it asks is none of the job's: no ring."""
    meets = [rank(number, ALL_REDUCE) for number in (0, 1)]
    verdict, _ = judge_job_with_graph(job(world=3), [*meets, on_rank(2, _asks_for_a_row(4711))])
    assert verdict.cause is None or verdict.cause.id != "deadlock"
    assert verdict.ranks.culprit == (2,)
