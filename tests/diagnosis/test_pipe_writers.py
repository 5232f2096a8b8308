"""A process that reads what nobody will write: all that have the writing end wait for the reader.
That is a hang as good as a ring of locks, and it is none as soon as one of them may write.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.process_facts import Descriptor, Kernel, Look, PipeEnd, Socket, Thread
from hangbisect.base.rank_facts import RankFacts
from hangbisect.diagnosis.proof_of_hang import find_proof_of_hang
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_snapshot

from .made_up import SLEEP, job, look, rank, stack

RESULTS, TASKS = "pipe:[11]", "pipe:[12]"
C10D = "SP/torch/distributed/distributed_c10d.py"


def pipe(path: str, *writers: int, kind: Any = "pipe") -> Descriptor:
    """What a process reads, and who has the writing end."""
    return Descriptor(
        5,
        kind,
        path,
        other_ends=writers,
        ends=tuple(PipeEnd(pid, 7, "python", 100) for pid in writers),
    )


def reads(path: str, *writers: int, pid: int = 100, kind: Any = "pipe", **more: Any) -> Look:
    return look(
        "Connection._recv STD/multiprocessing/connection.py:395",
        "work train.py:20",
        pid=pid,
        call="read",
        descriptors=(pipe(path, *writers, kind=kind),),
        **more,
    )


def with_thread(one: Look, *frames: str, call: str = "futex", state: str = "S") -> Look:
    """The same process with one more thread of Python's."""
    (main,) = one.kernel
    assert main.syscall is not None
    task = Kernel(one.pid + 1000, "python", state, "", replace(main.syscall, name=call))
    thread = Thread(one.pid + 1000, "helper", False, False, stack(*frames))
    return replace(one, kernel=(main, task), threads=(*one.threads, thread))


def proof(*ranks: RankFacts) -> str:
    snapshot = Snapshot(ranks)
    verdict, graph = judge_snapshot(job("still", len(ranks)), snapshot)
    return find_proof_of_hang(verdict, snapshot, graph)


def twice(number: int, one: Look, *children: Look) -> RankFacts:
    """A rank, and the processes below it, each seen twice."""
    pairs = tuple((replace(c, ppid=100 + number), replace(c, ppid=100 + number)) for c in children)
    facts = rank(number, one, replace(one, at=103.0), children=pairs)
    if len(one.kernel) == 1:
        return facts
    return replace(facts, looks=(one, replace(one, at=103.0)))  # with the ids of its threads


# A rank waits for a result, and the worker for a task: the task was lost.
WORKER = reads(TASKS, 100, pid=501)
WAITS = reads(RESULTS, 501)


def test_a_worker_that_waits_for_who_waits_for_it_is_a_proof() -> None:
    assert proof(twice(0, WAITS, WORKER))
    verdict, _ = judge_snapshot(job("still", 1), Snapshot([twice(0, WAITS, WORKER)]))
    assert verdict.cause is not None
    assert (verdict.cause.id, verdict.cause.level) == ("deadlock", "fits")
    assert verdict.ranks.culprit == (0,)


def test_the_reader_itself_may_have_the_writing_end_as_after_a_fork() -> None:
    facts = twice(0, reads(RESULTS, 501, 100), reads(TASKS, 100, 501, pid=501))
    assert proof(facts)
    verdict, _ = judge_snapshot(job("still", 1), Snapshot([facts]))
    assert verdict.cause is not None
    assert verdict.cause.id == "deadlock"


def test_two_ranks_that_read_from_one_another_are_a_proof() -> None:
    assert proof(twice(0, reads(RESULTS, 101)), twice(1, reads(TASKS, 100)))


def test_a_writer_may_wait_in_a_chain() -> None:
    """Rank 0 reads what rank 1 has to write, which waits in a collective for rank 0."""
    meets = look(f"all_reduce {C10D}:3252", "train train.py:40")
    assert proof(twice(0, reads(RESULTS, 101)), twice(1, meets))


def test_three_in_a_row_are_one_too() -> None:
    chain = (reads("pipe:[1]", 101), reads("pipe:[2]", 102), reads("pipe:[3]", 100))
    assert proof(*(twice(n, one) for n, one in enumerate(chain)))


def test_both_ends_of_a_socketpair() -> None:
    def hears(inode: int, peer: int, pid: int) -> Look:
        socket = Socket(inode, "unix", state="ESTABLISHED", peer_pids=(peer,))
        known = Descriptor(5, "socket", f"socket:[{inode}]", socket=socket)
        return look("ask train.py:9", pid=pid, call="recvfrom", descriptors=(known,))

    assert proof(twice(0, hears(21, 501, 100), hears(22, 100, 501)))


@pytest.mark.parametrize(
    ("reader", "worker"),
    [
        pytest.param(reads(RESULTS, 501, 777), WORKER, id="a writer that no look shows"),
        pytest.param(WAITS, SLEEP, id="the writer waits for something else"),
        pytest.param(WAITS, replace(WORKER, state="R"), id="the writer runs"),
        pytest.param(WAITS, replace(WORKER, state="T"), id="the writer may be continued"),
        pytest.param(WAITS, reads("/tmp/feed", 100, pid=501, kind="fifo"), id="a pipe with a name"),
        pytest.param(
            WAITS,
            with_thread(WORKER, "feed data.py:4", call="recvfrom"),
            id="a thread of the writer waits for somebody else",
        ),
        pytest.param(
            WAITS, with_thread(WORKER, "feed data.py:4", state="R"), id="a thread of it runs"
        ),
        pytest.param(
            with_thread(WAITS, "submit data.py:4", call="recvfrom"),
            WORKER,
            id="a thread of the reader may send a task",
        ),
        pytest.param(WAITS, reads(TASKS, pid=501), id="nobody knows who writes"),
    ],
)
def test_whoever_may_still_write_keeps_it_unproved(reader: Look, worker: Look) -> None:
    worker = replace(
        worker,
        pid=501,
        kernel=tuple(replace(k, tid=501 if k.tid == worker.pid else k.tid) for k in worker.kernel),
    )
    facts = twice(0, reader, worker)
    verdict, graph = judge_snapshot(job("still", 1), Snapshot([facts]))
    assert not graph.deadlocks
    assert verdict.cause is None or verdict.cause.id != "deadlock"


def test_a_time_limit_is_no_proof() -> None:
    (main,) = WAITS.kernel
    assert main.syscall is not None
    timed = replace(main, syscall=replace(main.syscall, name="poll", timeout=5.0))
    assert not proof(twice(0, replace(WAITS, kernel=(timed,)), WORKER))


def test_threads_that_wait_for_ever_or_serve_a_library_write_nothing() -> None:
    feeder = (
        "Condition.wait STD/threading.py:327",
        "Queue._feed STD/multiprocessing/queues.py:231",
    )
    assert proof(twice(0, with_thread(WAITS, *feeder), with_thread(WORKER, *feeder)))
    assert proof(twice(0, with_thread(WAITS, "hold data.py:4"), WORKER))


def test_one_of_several_writers_that_waits_for_something_else_is_enough() -> None:
    other = replace(SLEEP, pid=502, kernel=tuple(replace(k, tid=502) for k in SLEEP.kernel))
    assert not proof(twice(0, reads(RESULTS, 501, 502), WORKER, other))
    also = reads("pipe:[14]", 100, pid=502)
    assert proof(twice(0, reads(RESULTS, 501, 502), WORKER, also))


@pytest.mark.parametrize("more", [(), (rank(1, SLEEP),)])
def test_who_reads_a_pipe_of_its_own_is_told_that_nobody_writes(
    more: tuple[RankFacts, ...],
) -> None:
    """It is no ring: nobody waits for it. It forgot to close the end that it does not use."""
    snapshot = Snapshot([twice(0, reads(RESULTS, 100)), *more])
    verdict, _ = judge_snapshot(job("still", 1 + len(more)), snapshot)
    assert verdict.cause is not None
    assert verdict.cause.id == "pipe-no-writer"


def test_whoever_answers_a_request_may_be_woken_by_the_next_one() -> None:
    """A rank asks a server that is a thread of its own, which answers once all ranks have asked."""
    pair = Socket(9, "unix", "parameters", "parameters", "ESTABLISHED", peer_pids=(100,))
    asks = look(
        "SocketIO.readinto STD/socket.py:706",
        "push train.py:48",
        call="recvfrom",
        descriptors=(Descriptor(6, "socket", "socket:[9]", socket=pair),),
    )
    waits = ("Condition.wait STD/threading.py:327", "Barrier.wait STD/threading.py:697")
    alone = with_thread(asks, *waits, "fill train.py:20", "Thread.run STD/threading.py:982")
    answers = with_thread(
        asks,
        *waits,
        "Push.handle train.py:24",
        "BaseRequestHandler.__init__ STD/socketserver.py:755",
        "ThreadingMixIn.process_request_thread STD/socketserver.py:691",
        "Thread.run STD/threading.py:982",
    )
    assert proof(twice(0, alone))
    assert not proof(twice(0, answers))
