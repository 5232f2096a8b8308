"""Why the last process in a chain of children stands still that a rank waits for is the cause."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.process_facts import FileLock, Look
from hangbisect.base.verdict_facts import Cause
from hangbisect.diagnosis.proof_of_hang import find_proof_of_hang
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_job, judge_snapshot

from .causes.seen import SHARED
from .made_up import job, look, rank
from .queues import receives, unix

SPAWNED = (
    "BaseProcess.run STD/multiprocessing/process.py:108",
    "spawn_main STD/multiprocessing/spawn.py:122",
)
LOCK = FileLock("/cache/model.lock", 5, 999, "python")


def process(pid: int, parent: int, one: Look) -> Look:
    """A look at a process of a rank's, in which the main thread does what it does in `one`."""
    main, *others = one.kernel
    threads = tuple(replace(thread, os_id=pid) for thread in one.threads)
    kernel = (replace(main, tid=pid), *others)
    return replace(one, pid=pid, ppid=parent, threads=threads, kernel=kernel)


def cause_of(one: Look, *children: Look) -> Cause | None:
    facts = rank(0, one, children=tuple((child,) for child in children))
    return judge_job(job(world=1), [facts]).cause


ASKS = receives(0, unix(501))
ENGINE = process(501, 100, receives(0, unix(100, 61), unix(502, 63)))
LOADS = process(
    502, 501, look("load model.py:9", *SPAWNED, call="flock", locks=(LOCK,), wchan="locks_lock")
)


def test_the_cause_is_why_the_last_of_the_chain_stands_still() -> None:
    cause = cause_of(ASKS, ENGINE, LOADS)
    assert cause is not None
    assert cause.id == "file-lock-held"
    assert "/cache/model.lock" in cause.why
    assert cause.why.startswith("It waits for python (502), a process of its own. There: ")


def test_it_is_no_proof_that_the_rank_hangs() -> None:
    """It may be a process that has no more to do for it."""
    taken = process(
        502,
        501,
        # Started by no multiprocessing, of which its parent might have the lock.
        look("Lock.acquire STD/multiprocessing/synchronize.py:95", "load model.py:9", args=SHARED),
    )
    facts = rank(0, ASKS, children=((ENGINE,), (taken,)))
    snapshot = Snapshot([facts])
    verdict, graph = judge_snapshot(job(world=1), snapshot)
    assert verdict.cause is not None
    assert verdict.cause.id == "dead-owner"  # which is a proof where it is the rank's own
    assert find_proof_of_hang(verdict, snapshot, graph) == ""


def test_of_one_that_nothing_explains_it_is_that_it_is_stuck() -> None:
    waits = process(502, 501, look("work model.py:9", *SPAWNED, call="recvfrom"))
    cause = cause_of(ASKS, ENGINE, waits)
    assert cause is not None
    assert cause.id == "child-process-stuck"


def test_its_parent_is_no_server_outside_of_the_job() -> None:
    asks = look("Client.read SP/redis/connection.py:9", *SPAWNED, call="recvfrom")
    parent = unix(501, 71)
    asks = replace(asks, sockets=(parent,))
    (main,) = asks.kernel
    assert main.syscall is not None
    named = ASKS.kernel[1].syscall
    assert named is not None
    descriptor = replace(named.descriptors[2], path="socket:[71]", socket=parent)
    call = replace(main.syscall, descriptors=(descriptor,))
    waits = process(502, 501, replace(asks, kernel=(replace(main, syscall=call),)))
    cause = cause_of(ASKS, ENGINE, waits)
    assert cause is None or cause.id != "endpoint-silent"


def test_one_that_waits_for_the_rank_in_turn_has_no_task_and_is_not_stuck() -> None:
    idle = process(501, 100, receives(0, unix(100, 61)))
    cause = cause_of(ASKS, idle)
    assert cause is None or cause.id != "child-process-stuck"


def test_of_a_worker_of_a_pool_it_is_what_the_worker_waits_for() -> None:
    """Of a ProcessPoolExecutor as of any child: that it stands still in its initializer says less
    than that it waits there for a lock, and who has that.
    """
    asks = look(
        "Condition.wait STD/threading.py:327",
        "Future.result STD/concurrent/futures/_base.py:451",
        "_chain_from_iterable_of_lists STD/concurrent/futures/process.py:620",
        "main train.py:31",
    )
    initializes = (
        "load_model train.py:17",
        "_process_worker STD/concurrent/futures/process.py:240",
        *SPAWNED,
    )
    locked = look(*initializes, call="flock", locks=(LOCK,), wchan="locks_lock_inode_wait")
    cause = cause_of(asks, process(501, 100, locked), process(502, 100, locked))
    assert cause is not None
    assert cause.id == "file-lock-held"
    assert "/cache/model.lock" in cause.why
    unknown = look(*initializes, call="read", wchan="folio_wait")
    cause = cause_of(asks, process(501, 100, unknown))
    assert cause is not None
    assert cause.id == "worker-stuck"
