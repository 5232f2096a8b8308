"""Whom a main thread waits for that waits at a message queue: ZeroMQ keeps its connections in
threads of its own, and the main thread sleeps at an eventfd that names nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.process_facts import Descriptor, Look, Socket
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.verdict_facts import Wait
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_job

from .causes.scenes import causes_of
from .made_up import job, look, rank
from .queues import EPOLL, EVENT, LISTENS, queue, receives, unix


def waits(*ranks: RankFacts) -> Sequence[Wait | None]:
    return list(Snapshot(ranks).waits.values())


def wait_of(one: Look, **more: Any) -> Wait:
    (found,) = waits(rank(0, one, **more))
    assert found is not None
    return found


STUCK = look("read_the_index train.py:9", pid=101, call="openat", wchan="wait_for_partner")


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_the_peer_of_its_queue_is_waited_for_with_a_time_limit_or_without(
    timeout: float | None,
) -> None:
    found, stuck = waits(rank(0, receives(0, unix(101), timeout=timeout)), rank(1, STUCK))
    assert found is not None
    assert stuck is not None
    assert (found.kind, found.rank, found.pid) == ("socket", 1, 101)
    assert found.what == "/tmp/a.sock"
    assert stuck.kind == "pipe"


def test_an_event_loop_that_awaits_a_queue_waits_for_its_peer() -> None:
    own = Socket(60, "unix", "", "", "ESTABLISHED", peer_pids=(100,), peer_inode=61)
    wakes = Descriptor(12, "socket", "socket:[60]", socket=own)
    one = receives(0, unix(101))
    main, thread = one.kernel
    assert main.syscall is not None
    call = replace(main.syscall, name="epoll_wait", descriptors=(EPOLL, EVENT, wakes))
    found, _ = waits(
        rank(0, replace(one, kernel=(replace(main, syscall=call), thread))), rank(1, STUCK)
    )
    assert found is not None
    assert (found.kind, found.rank) == ("socket", 1)


def test_a_child_at_the_other_end_is_what_is_waited_for() -> None:
    engine = replace(STUCK, pid=501, ppid=100, name="VLLM::EngineCor")
    found = wait_of(receives(0, unix(501)), children=((engine,),))
    assert (found.kind, found.pid) == ("process", 501)
    assert found.detail.startswith("pipe")


def test_of_several_peers_it_is_one_that_does_not_wait_for_us_and_the_others_are_named() -> None:
    peers = (unix(101, 51), unix(102, 53), unix(103, 55))
    found, *_ = waits(
        rank(0, receives(0, *peers)),
        rank(1, receives(1, unix(100, 52))),
        rank(2, replace(STUCK, pid=102)),
        rank(3, receives(3, unix(100, 56))),
    )
    assert found is not None
    assert (found.rank, found.others) == (2, (101, 103))
    assert "or it waits for 101, 103" in found.detail


def test_the_chain_names_the_other_peers() -> None:
    ranks = [
        rank(0, receives(0, unix(101, 51), unix(102, 53))),
        rank(1, STUCK),
        rank(2, receives(2, unix(100, 54))),
    ]
    verdict = judge_job(job(world=3), ranks)
    assert verdict.ranks.culprit == (1,)
    assert any("or it waits for 102" in edge.evidence for edge in verdict.chain)


def test_a_worker_without_a_task_waits_for_who_is_to_send_one() -> None:
    found, other = waits(rank(0, STUCK), rank(1, receives(1, unix(100))))
    assert found is not None
    assert other is not None
    assert (found.kind, other.rank) == ("pipe", 0)


def test_a_queue_that_listens_and_has_no_connection_says_so() -> None:
    found = wait_of(receives(0, LISTENS))
    assert (found.kind, found.pid, found.what) == ("socket", None, "/tmp/a.sock")
    assert "nobody is connected" in found.detail


def test_an_address_that_nobody_serves_is_named() -> None:
    one = replace(receives(0, retries=0.1), unserved=("ipc:///tmp/a.sock",))
    found = wait_of(one)
    assert (found.kind, found.pid, found.what) == ("socket", None, "ipc:///tmp/a.sock")
    assert "nobody serves ipc:///tmp/a.sock" in found.detail


def test_an_eventfd_of_who_has_no_queue_is_still_a_sleep() -> None:
    one = receives(0, timeout=5.0)
    assert wait_of(replace(one, kernel=one.kernel[:1])).kind == "sleep"


def test_a_queue_at_which_the_main_thread_does_not_wait_is_not_its_wait() -> None:
    sleeps = look("step train.py:5", call="clock_nanosleep")
    one = replace(sleeps, kernel=(*sleeps.kernel, queue(unix(101))))
    assert wait_of(one).kind == "sleep"


def test_who_waits_for_a_rank_by_a_queue_is_not_blamed() -> None:
    causes = causes_of((job(), [rank(0, receives(0, unix(101))), rank(1, STUCK)]))
    assert "endpoint-unserved" not in causes
    assert "native-call" not in causes


def test_a_parent_at_the_other_end_of_a_queue_is_no_store() -> None:
    """Torchrun's agent serves the store to its ranks; an engine sends tasks to its workers."""
    engine = 77
    for peer in (
        unix(engine),
        Socket(51, "tcp", "127.0.0.1:5", "127.0.0.1:6", "ESTABLISHED", peer_pids=(engine,)),
    ):
        found = wait_of(replace(receives(0, peer), ppid=engine))
        assert (found.kind, found.pid) == ("socket", engine)


def test_a_parent_at_the_other_end_of_a_unix_socket_is_no_store() -> None:
    named = Descriptor(5, "socket", "socket:[51]", socket=unix(77))
    found = wait_of(look("work train.py:5", call="recvfrom", descriptors=(named,), ppid=77))
    assert (found.kind, found.pid) == ("socket", 77)


def _receives_from_us(name: str, pid: int = 300) -> Look:
    """Return a process beside rank 0 that waits for a message of it."""
    one = replace(receives(0, unix(100)), pid=pid, ppid=77, name=name)
    main, *others = one.kernel
    threads = tuple(replace(thread, os_id=pid) for thread in one.threads)
    return replace(one, threads=threads, kernel=(replace(main, tid=pid), *others))


def test_two_that_receive_from_one_another_are_named_and_not_who_waits_for_their_end() -> None:
    joins = look("Popen.wait STD/x.py:1", pid=77, call="wait4", args=(100, 0, 0, 0))
    other = _receives_from_us("detokenizer")
    ours = replace(receives(0, unix(77, 53), unix(300, 51)), ppid=77)
    facts = rank(0, ours, children=((joins,), (other,)), beside=(77, 300))
    found, *_ = waits(facts, rank(1, STUCK))
    assert found is not None
    assert found.pid == 300
    causes = causes_of((job(), [facts, rank(1, STUCK)]))
    why = causes["nobody-sends"].why
    assert "python (100)" in why
    assert "detokenizer (300)" in why
    assert "endpoint-silent" not in causes


def test_of_several_that_all_wait_for_it_none_is_named_beside_who_hears_them() -> None:
    """A router answers each by a name, and one has told it another one: all wait for all."""
    peers = (unix(101, 51), unix(102, 53), unix(103, 55))
    ranks = [
        rank(0, receives(0, *peers)),
        rank(1, receives(1, unix(100, 52))),
        rank(2, receives(2, unix(100, 54))),
        rank(3, receives(3, unix(100, 56))),
    ]
    verdict = judge_job(job(world=4), ranks)
    assert verdict.ranks.culprit == (0,)
    assert verdict.ranks.waiting == (1, 2, 3)
    two = [rank(0, receives(0, peers[0])), rank(1, receives(1, unix(100, 52)))]
    assert judge_job(job(world=2), two).ranks.culprit == (0, 1)


def test_so_it_is_of_one_that_polls_all_their_connections_itself() -> None:
    """epoll, edge-triggered: what one has sent lies in its socket, and is not read."""
    ends = tuple(
        Descriptor(10 + n, "socket", f"socket:[{n}]", socket=unix(100 + n, 50 + 2 * n))
        for n in (1, 2, 3)
    )
    hears = look("collect train.py:32", call="epoll_wait", descriptors=ends)

    def sends(number: int) -> Look:
        end = Descriptor(3, "socket", f"socket:[{number + 10}]", socket=unix(100, 70 + 2 * number))
        return look("send train.py:48", pid=100 + number, call="recvfrom", descriptors=(end,))

    ranks = [rank(0, hears), *(rank(n, sends(n)) for n in (1, 2, 3))]
    verdict = judge_job(job("late", 4), ranks)
    assert verdict.ranks.culprit == (0,)
    assert verdict.ranks.waiting == (1, 2, 3)
