"""A rank that serves its peers waits for those that have not come to it: those that came wait for
it, so without this both the one that serves and the one that is missing would be blamed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.checkpoints import UserStep
from hangbisect.base.identity import ProcessId, UnknownRank
from hangbisect.base.process_facts import Descriptor, Look, Socket, Thread
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.verdict_facts import Verdict
from hangbisect.diagnosis.proof_of_hang import find_proof_of_hang, have_all_asked
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_job, judge_job_with_graph

from .made_up import gone, job, look, rank, silent_peer, stack
from .queues import receives

SCRIPT = UserStep("script", "Script", "", 0.0, number=1)
HUB = "127.0.0.1:58553"
LISTENS = Socket(1, "tcp", local=HUB, state="LISTEN")
JOIN = look("Thread.join STD/threading.py:1119", "load train.py:23", "train train.py:34")
URLOPEN = look(
    "SocketIO.readinto STD/socket.py:706",
    "urlopen STD/urllib/request.py:216",
    "metadata train.py:51",
    call="recvfrom",
    descriptors=(silent_peer("10.9.0.1:80"),),
)
PAUSE = look("pause tools.py:5", "train train.py:30", call="clock_nanosleep")


def as_descriptor(socket: Socket) -> Descriptor:
    return Descriptor(6, "socket", f"socket:[{socket.inode}]", socket=socket)


def accepts(*peers: str, call: str = "accept4", listens: Socket = LISTENS) -> Look:
    """Rank 0 in accept(), with connections of these addresses accepted already."""
    accepted = tuple(
        Socket(10 + n, "tcp", listens.local, peer, "ESTABLISHED") for n, peer in enumerate(peers)
    )
    return look(
        "socket.accept STD/socket.py:294",
        "<listcomp> train.py:29",
        "train train.py:29",
        call=call,
        descriptors=(as_descriptor(listens),),
        sockets=(listens, *accepted),
    )


def client(number: int, server: int = 100, at: str = HUB) -> Look:
    """A rank that has connected to the hub and waits for its word."""
    mine = Socket(20 + number, "tcp", f"127.0.0.1:4{number:04}", at, "ESTABLISHED")
    mine = replace(mine, peer_pids=(server,), peer_names=("python",))
    return look(
        "train train.py:40",
        "<module> train.py:57",
        call="recvfrom",
        descriptors=(as_descriptor(mine),),
        sockets=(mine,),
    )


def still(number: int, one: Look, **more: Any) -> RankFacts:
    return rank(number, one, replace(one, at=103.0), replace(one, at=106.0), **more)


def judged(*looks: Look) -> Verdict:
    return judge_job(job("late", len(looks)), [still(n, one) for n, one in enumerate(looks)])


@pytest.mark.parametrize("other", [JOIN, URLOPEN, PAUSE])
def test_who_accepts_waits_for_who_has_not_come(other: Look) -> None:
    verdict = judged(accepts("127.0.0.1:1", "127.0.0.1:2"), client(1), client(2), other)
    assert verdict.ranks.culprit == (3,)
    assert verdict.ranks.waiting == (0, 1, 2)
    way = [edge.target for edge in verdict.chain]
    assert way[way.index("rank 3") - 1] == f"connections to {HUB}"


def test_of_several_that_have_not_come_all_are_waited_for() -> None:
    verdict = judged(accepts("127.0.0.1:1"), client(1), JOIN, URLOPEN)
    assert {2, 3} >= {*verdict.ranks.culprit}
    assert verdict.ranks.culprit
    assert 0 in verdict.ranks.waiting


def test_where_all_have_come_it_waits_for_somebody_else() -> None:
    """One connection too many is asked for: nobody of the job is missing."""
    verdict = judged(accepts("127.0.0.1:1", "127.0.0.1:2"), client(1), client(2))
    assert verdict.ranks.culprit == (0,)
    assert verdict.ranks.waiting == (1, 2)


def test_where_nobody_has_come_nothing_tells_that_ranks_are_to_come() -> None:
    verdict = judged(accepts(), JOIN)
    assert {*verdict.ranks.culprit} == {0, 1}


def test_connections_to_another_port_do_not_tell_who_comes_here() -> None:
    verdict = judged(accepts(), client(1, at="127.0.0.1:29500"), JOIN)
    assert {*verdict.ranks.culprit} == {0, 2}


def test_who_waits_for_the_server_in_another_way_is_not_missing() -> None:
    """Rank 2 waits for a pipe of rank 0: were it waited for, each would wait for the other."""
    pipe = Descriptor(4, "pipe", "pipe:[9]", other_ends=(100,))
    reads = look("train train.py:44", call="read", descriptors=(pipe,))
    verdict = judged(accepts("127.0.0.1:1"), client(1), reads)
    assert verdict.ranks.culprit == (0,)


def test_a_rank_that_moves_is_waited_for_and_nobody_is_to_blame() -> None:
    ranks = [
        still(0, accepts("127.0.0.1:1")),
        still(1, client(1)),
        still(2, PAUSE, moved="reads a file"),
    ]
    verdict = judge_job(job("late", 3), ranks)
    assert verdict.ranks.culprit == ()
    assert {0, 1} <= {*verdict.ranks.waiting}


def test_it_proves_no_hang() -> None:
    ranks = [still(0, accepts("127.0.0.1:1")), still(1, client(1)), still(2, URLOPEN)]
    verdict, graph = judge_job_with_graph(job("late", 3), ranks)
    assert not graph.deadlocks
    assert not find_proof_of_hang(verdict, Snapshot(ranks), graph)


PATH = "parameters"
SERVES = Socket(1, "unix", local=PATH, state="LISTEN")


def at_path(number: int, server: int = 100) -> Socket:
    mine = Socket(30 + number, "unix", peer=PATH, state="ESTABLISHED", peer_pids=(server,))
    return replace(mine, peer_names=("python",))


def pushes(number: int) -> Look:
    mine = at_path(number)
    return look(
        "SocketIO.readinto STD/socket.py:706",
        "push train.py:47",
        call="recvfrom",
        descriptors=(as_descriptor(mine),),
        sockets=(mine,),
    )


def serves_itself(*handlers: str) -> Look:
    """Rank 0, which serves in threads and asks its own server."""
    one = replace(pushes(0), sockets=(SERVES, at_path(0)))
    more = (Thread(900 + n, "serves", False, False, stack(f)) for n, f in enumerate(handlers))
    return replace(one, threads=(*one.threads, *more))


BARRIER = "Barrier.wait STD/threading.py:697"


def test_who_asks_its_own_server_waits_for_who_has_not_asked_it() -> None:
    verdict = judged(serves_itself(BARRIER, BARRIER), pushes(1), pushes(2), URLOPEN)
    assert verdict.ranks.culprit == (3,)
    assert verdict.ranks.waiting == (0, 1, 2)


def test_who_asks_its_own_server_that_all_have_asked_is_to_blame() -> None:
    verdict = judged(serves_itself(BARRIER), pushes(1), pushes(2))
    assert verdict.ranks.culprit == (0,)


# ---- a server whose queue hears all that are left ------------------------------------------------

QUEUE = Socket(40, "tcp", local="10.0.0.1:9410", state="LISTEN")


def serves_queue(*guests: int) -> Look:
    """Rank 0, which receives at a queue of ZeroMQ's; these ranks are connected to it."""
    came = [
        Socket(50 + n, "tcp", QUEUE.local, f"10.0.0.{n + 1}:5000", "ESTABLISHED", remote=of(n))
        for n in guests
    ]
    return receives(0, QUEUE, *came)


def of(number: int) -> ProcessId:
    return ProcessId(f"n{number}", 100 + number)


def guest(number: int) -> Look:
    there = Socket(60, "tcp", f"10.0.0.{number + 1}:5000", QUEUE.local, "ESTABLISHED", remote=of(0))
    return replace(receives(number, there), sockets=(there,))


def judged_on_hosts(*ranks: RankFacts) -> Verdict:
    return judge_job(
        job("late", len(ranks), pipeline="", command=("python", "serve.py")),
        [replace(one, host=f"n{one.rank}", step=SCRIPT) for one in ranks],
    )


def test_a_queue_that_all_wait_for_waits_for_the_rank_that_ended() -> None:
    ranks = (still(0, serves_queue(1, 2)), still(1, guest(1)), still(2, guest(2)))
    verdict = judged_on_hosts(*ranks, gone(3, 0))
    assert verdict.ranks.culprit == (3,)
    assert verdict.ranks.waiting == (0, 1, 2)
    assert verdict.cause is not None
    assert verdict.cause.id == "rank-left"


def test_a_queue_that_one_does_not_ask_waits_for_that_one() -> None:
    ranks = (still(0, serves_queue(1, 2)), still(1, guest(1)), still(2, URLOPEN))
    verdict = judged_on_hosts(*ranks, gone(3, 0))
    assert 2 in verdict.ranks.culprit
    assert verdict.ranks.waiting == (0, 1)


def test_a_parent_that_serves_what_python_reads_is_no_store() -> None:
    """The store of torch is asked in C++. Who reads from its starter by Python's own socket module
    asks something else, and has not come to where the others wait.
    """
    served = Socket(5, "unix", "", "parameters", "ESTABLISHED", peer_pids=(100,))
    listens = Socket(4, "unix", "parameters", "", "LISTEN")

    def pushes(*more: Socket) -> Look:
        frames = ("SocketIO.readinto STD/socket.py:706", "push train.py:47", "train train.py:66")
        descriptors = (Descriptor(7, "socket", "socket:[5]", socket=served),)
        one = look(*frames, call="recvfrom", descriptors=descriptors)
        return replace(one, sockets=(served, *more))

    asked = Socket(6, "tcp", "127.0.0.1:40", "127.0.0.1:8080", "ESTABLISHED", peer_pids=(50,))
    asks = look(
        "SocketIO.readinto STD/socket.py:706",
        "HTTPResponse.begin STD/http/client.py:325",
        "metadata train.py:52",
        call="recvfrom",
        descriptors=(Descriptor(8, "socket", "socket:[6]", socket=asked),),
        ppid=50,
        sockets=(asked,),
    )
    ranks = [rank(0, pushes(listens)), rank(1, pushes()), rank(2, asks), rank(3, pushes())]
    found = judge_job(job("still", world=4, pipeline=""), ranks)
    assert (found.ranks.culprit, found.ranks.waiting) == ((2,), (0, 1, 3))


def asks_starter(step: int) -> Look:
    """A trainer that has asked the server which started it, in one of its steps."""
    asked = Socket(6, "tcp", "127.0.0.1:40", "127.0.0.1:8080", "ESTABLISHED", peer_pids=(50,))
    return look(
        "SocketIO.readinto STD/socket.py:706",
        "HTTPResponse.begin STD/http/client.py:325",
        f"train train.py:{60 + step}",
        call="recvfrom",
        descriptors=(Descriptor(8, "socket", "socket:[6]", socket=asked),),
        ppid=50,
        sockets=(asked,),
    )


def test_of_ranks_that_have_all_asked_who_started_them_none_is_to_blame() -> None:
    """Which of them was a step ahead is chance: only the server can go on."""
    ranks = [rank(0, asks_starter(1)), rank(1, asks_starter(1)), rank(2, asks_starter(3))]
    found = judge_job(job("still", world=3, pipeline=""), ranks)
    assert found.ranks.culprit == ()
    assert any(
        "wait for an answer of process (50), which has started them" in n for n in found.said
    )


def serves(timeout: float | None) -> Look:
    """The loop of a server, as a process that is no rank."""
    listens = Socket(3, "tcp", "127.0.0.1:8080", "", "LISTEN")
    one = look("BaseEventLoop._run_once STD/asyncio/base_events.py:1884", pid=50, call="epoll_wait")
    (task,) = one.kernel
    assert task.syscall is not None
    kernel = (replace(task, syscall=replace(task.syscall, timeout=timeout)),)
    return replace(one, kernel=kernel, sockets=(listens,))


def test_who_started_them_is_named_where_it_is_looked_at_and_waits_for_nobody_else() -> None:
    for server, is_named in ((serves(3630.0), True), (serves(5.0), False)):
        starter = replace(server, command=("python", "train.py", "8080"), ppid=7)
        first = replace(rank(0, asks_starter(1)), children=((starter,),), beside=(50,))
        ranks = [first, rank(1, asks_starter(1)), rank(2, asks_starter(3))]
        found = judge_job(job("still", world=3, pipeline=""), ranks)
        assert found.ranks.culprit == ((UnknownRank("n01", 50),) if is_named else ())
        assert found.ranks.waiting == (0, 1, 2)


def test_a_server_that_all_ranks_have_asked_does_not_wait_for_work() -> None:
    seen = Snapshot([rank(n, asks_starter(1)) for n in range(3)])
    assert have_all_asked(seen, [serves(None)])
    assert have_all_asked(seen, [serves(3630.0)])  # aiohttp closes idle connections then
    assert not have_all_asked(seen, [serves(5.0)])  # it wakes by itself
    works = Snapshot([rank(0, asks_starter(1)), rank(1, look("work train.py:3", call=""))])
    assert not have_all_asked(works, [serves(None)])
    assert not have_all_asked(seen, [replace(serves(None), sockets=())])
