"""Ranks that go on exchanging messages over a connection of their own are at work, wherever each
look finds them; those of which every thread waits to hear of the others never go on.
"""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.identity import ProcessId
from hangbisect.base.process_facts import Descriptor, Kernel, Look, Socket
from hangbisect.base.rank_facts import RankFacts
from hangbisect.diagnosis.rank_connections import find_closed_circle, note_exchanges
from hangbisect.diagnosis.verdict import judge_job

from .made_up import SLEEP, job, look, rank

HERE, THERE = "10.0.0.1:9100", "10.0.0.2:47572"


def socket(local: str, peer: str, received: int | None) -> Socket:
    return Socket(7, "tcp", local, peer, "ESTABLISHED", received=received, sent=received)


def sleeps(at: float, *sockets: Socket) -> Look:
    """Between two steps, in the same place each time."""
    return look("compute meets.py:32", call="clock_nanosleep", sockets=sockets, at=at)


def steps(number: int, local: str, peer: str, *received: int | None) -> RankFacts:
    """A rank with as many looks, a second apart."""
    looks = [sleeps(100.0 + n, socket(local, peer, one)) for n, one in enumerate(received)]
    return replace(rank(number, *looks), host=f"n0{number + 1}")


def moved(*ranks: RankFacts) -> list[str]:
    return [facts.moved for facts in note_exchanges(ranks)]


def test_both_are_at_work_while_messages_come_and_go() -> None:
    found = moved(steps(0, HERE, THERE, 60, 66, 71), steps(1, THERE, HERE, 55, 62, 66))
    assert found == ["exchanges messages with rank 1", "exchanges messages with rank 0"]


def test_nothing_came_lately() -> None:
    """The first look is from before the hang."""
    both = (steps(0, HERE, THERE, 60, 71, 71), steps(1, THERE, HERE, 60, 71, 71))
    assert moved(*both) == ["", ""]


def test_one_way_is_no_exchange() -> None:
    """One sends on and on, and is not answered: heartbeats of a thread, or words into a buffer."""
    assert moved(steps(0, HERE, THERE, 5, 6, 7), steps(1, THERE, HERE, 5, 5, 5)) == ["", ""]


def test_what_is_not_counted_or_not_looked_at_is_no_exchange() -> None:
    known = steps(0, HERE, THERE, 5, 6, 7)
    assert moved(known, steps(1, THERE, HERE, None, None, None)) == ["", ""]
    assert moved(known, rank(1)) == ["", ""]
    assert moved(known) == [""]
    assert moved(known, steps(1, "10.0.0.3:5", HERE, 5, 6, 7)) == ["", ""]


def test_what_another_thread_says_does_not_count() -> None:
    """A store of torch's answers from a thread of rank 0 whoever asks again and again, while its
    main thread hangs.
    """
    serves = steps(0, HERE, THERE, 60, 66, 71)
    thread = Kernel(4711, "pt_tcpstore", "S", "ep_poll", None)
    two = tuple(replace(one, kernel=(*one.kernel, thread)) for one in serves.looks)
    serves = replace(serves, looks=two)
    asks = steps(1, THERE, HERE, 55, 62, 66)
    assert moved(serves, asks) == ["", ""]
    # Where the main thread is seen to read from that connection it is the one that talks.
    reads = look(
        "all_meet meets.py:39",
        call="recvfrom",
        descriptors=(Descriptor(5, "socket", "socket:[7]", socket=socket(HERE, THERE, 66)),),
        sockets=(socket(HERE, THERE, 66),),
        at=101.0,
    )
    reads = replace(rank(0, reads).looks[0], kernel=(*rank(0, reads).looks[0].kernel, thread))
    serves = replace(serves, looks=(two[0], reads, two[2]))
    assert moved(serves, asks)[0] == "exchanges messages with rank 1"


def test_event_loops_that_keep_each_other_awake_do_nothing_else() -> None:
    """Actors that send a ping each second, and wait for what does not come."""

    def idles(facts: RankFacts) -> RankFacts:
        waits = (
            look("run_forever STD/asyncio/base_events.py:9", call="epoll_wait").kernel[0].syscall
        )
        return replace(
            facts,
            looks=tuple(
                replace(one, kernel=tuple(replace(k, syscall=waits) for k in one.kernel))
                for one in facts.looks
            ),
        )

    here, there = steps(0, HERE, THERE, 60, 66, 71), steps(1, THERE, HERE, 55, 62, 66)
    assert moved(idles(here), idles(there)) == ["", ""]
    busy = replace(idles(here), looks=(*idles(here).looks[:2], here.looks[2]))
    assert moved(busy, there)[0] == "exchanges messages with rank 1"


def test_loopback_is_each_machine_s_own() -> None:
    one, other = "127.0.0.1:9100", "127.0.0.1:47572"
    apart = steps(0, one, other, 5, 6, 7), steps(1, other, one, 5, 6, 7)
    assert moved(*apart) == ["", ""]
    assert all(moved(*(replace(facts, host="n01") for facts in apart)))


def test_what_else_moved_stays_said() -> None:
    first = replace(steps(0, HERE, THERE, 60, 66, 71), moved="reads 4 MiB")
    assert moved(first, steps(1, THERE, HERE, 55, 62, 66))[0] == "reads 4 MiB"


# ---- ranks that wait for one another alone -------------------------------------------------------


SOCKET = "/usr/lib/python3.11/lib-dynload/_socket.cpython-311-x86_64-linux-gnu.so"


def asks(number: int, there: int, port: int = 9360, caller: str = SOCKET) -> Look:
    """A rank that waits for the answer of another one's server, in a call of its own."""
    address = f"10.0.0.{there + 1}:{port}"
    end = Socket(70 + number, "tcp", f"10.0.0.{number + 1}:40000", address, "ESTABLISHED")
    asked = replace(end, remote=ProcessId(f"n{there}", 100 + there))
    one = look(
        "SocketIO.readinto STD/socket.py:706",
        "HTTPConnection.getresponse STD/http/client.py:1386",
        "report train.py:33",
        "<module> train.py:70",
        call="recvfrom",
        descriptors=(Descriptor(8, "socket", "socket:[8]", socket=asked),),
    )
    (task,) = one.kernel
    assert task.syscall is not None
    return replace(one, kernel=(replace(task, syscall=replace(task.syscall, caller=caller)),))


def on_host(number: int, one: Look) -> RankFacts:
    looks = (one, replace(one, at=103.0), replace(one, at=106.0))
    return replace(rank(number, *looks), host=f"n{number}")


def with_thread(one: Look, asked: Look, name: str = "serves") -> Look:
    """The same look with a further thread, where the main thread of `asked` is."""
    thread = replace(asked.threads[0], os_id=777, name=name)
    return replace(
        one,
        threads=(*one.threads, thread),
        kernel=(*one.kernel, replace(asked.kernel[0], tid=777)),
    )


def in_threads(number: int, one: Look, asked: Look) -> RankFacts:
    facts = on_host(number, one)
    return replace(facts, looks=tuple(with_thread(look, asked) for look in facts.looks))


def test_a_server_and_a_client_that_ask_one_another_are_a_ring() -> None:
    """The client's server asks as well: none of its threads is left to answer."""
    ranks = [on_host(0, asks(0, 1)), in_threads(1, asks(1, 0), asks(1, 0)), on_host(2, asks(2, 0))]
    assert find_closed_circle(ranks) == {ProcessId(f"n{n}", 100 + n) for n in range(3)}
    verdict = judge_job(job("late", 3, pipeline=""), ranks)
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((0, 1), (2,))
    assert verdict.cause is not None
    assert verdict.cause.id == "deadlock"


def test_a_connection_that_nobody_has_accepted_yet_is_its_servers() -> None:
    pending = asks(1, 0)
    (task,) = pending.kernel
    assert task.syscall is not None
    (end,) = task.syscall.descriptors
    assert end.socket is not None
    bare = replace(end, socket=replace(end.socket, remote=None))
    pending = replace(
        pending, kernel=(replace(task, syscall=replace(task.syscall, descriptors=(bare,))),)
    )
    accepted = Socket(90, "tcp", "10.0.0.1:9360", "10.0.0.3:1", "ESTABLISHED")
    server = replace(asks(0, 1), sockets=(accepted,))
    ranks = [on_host(0, server), in_threads(1, asks(1, 0), pending)]
    assert len(find_closed_circle(ranks)) == 2


def test_a_ring_over_connections_that_its_server_has_not_accepted_is_one() -> None:
    """That server has no thread that serves another one: it asks a client itself."""
    listens = Socket(91, "tcp", "10.0.0.1:9360", state="LISTEN")
    server = replace(asks(0, 1), sockets=(listens,))
    ranks = [on_host(0, server), in_threads(1, asks(1, 0), asks(1, 0)), on_host(2, asks(2, 0))]
    verdict = judge_job(job("late", 3, pipeline=""), ranks)
    assert verdict.cause is not None
    assert (verdict.ranks.culprit, verdict.cause.id) == ((0, 1), "deadlock")


def test_who_has_a_thread_that_could_answer_is_in_no_ring() -> None:
    idle = look("select STD/selectors.py:415", "run train.py:60", call="poll")
    ranks = [on_host(0, asks(0, 1)), in_threads(1, asks(1, 0), idle)]
    assert not find_closed_circle(ranks)
    verdict = judge_job(job("late", 2, pipeline=""), ranks)
    assert verdict.cause is None or verdict.cause.id != "deadlock"


def test_what_a_library_asks_a_thread_of_a_library_may_answer() -> None:
    """A store of torch's is served by a thread without Python."""
    torch = "/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so"
    for caller in (torch, ""):
        assert not find_closed_circle([on_host(0, asks(0, 1)), on_host(1, asks(1, 0, 1, caller))])
    assert find_closed_circle([on_host(0, asks(0, 1)), on_host(1, asks(1, 0))])


def test_what_is_still_on_its_way_may_end_it() -> None:
    lost = Socket(9, "tcp", "10.0.0.1:9360", "10.0.0.2:40000", "ESTABLISHED", resent=2)
    sends = replace(asks(0, 1), sockets=(lost,))
    assert not find_closed_circle([on_host(0, sends), on_host(1, asks(1, 0))])


def test_who_waits_for_one_that_is_at_work_is_in_no_ring() -> None:
    assert not find_closed_circle([on_host(0, SLEEP), on_host(1, asks(1, 0))])


def test_two_servers_that_a_rank_has_started_and_that_ask_one_another_are_a_ring() -> None:
    """The rank only waits for one of them."""
    servers = (
        replace(asks(1, 2), pid=101, ppid=100),
        replace(asks(2, 1), pid=102, ppid=100),
    )
    made = [
        replace(
            one,
            threads=tuple(replace(thread, os_id=one.pid) for thread in one.threads),
            kernel=tuple(replace(task, tid=one.pid) for task in one.kernel),
        )
        for one in servers
    ]

    def here(one: Look, peer: int) -> Look:
        """The connection leads to a process of the same host."""
        (task,) = one.kernel
        assert task.syscall is not None
        (end,) = task.syscall.descriptors
        assert end.socket is not None
        known = replace(end.socket, remote=None, peer_pids=(peer,))
        call = replace(task.syscall, descriptors=(replace(end, socket=known),))
        return replace(one, kernel=(replace(task, syscall=call),))

    first, second = here(made[0], 102), here(made[1], 101)
    facts = rank(0, here(asks(0, 1), 101), children=((first,), (second,)))
    assert {one.pid for one in find_closed_circle([facts])} >= {101, 102}
    verdict = judge_job(job("late", 1, pipeline=""), [facts])
    assert verdict.cause is not None
    assert verdict.cause.id == "deadlock"
