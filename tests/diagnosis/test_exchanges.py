"""Ranks that go on exchanging messages over a connection of their own are at work, wherever each
look finds them.
"""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.process_facts import Descriptor, Kernel, Look, Socket
from hangbisect.base.rank_facts import RankFacts
from hangbisect.diagnosis.rank_connections import note_exchanges

from .made_up import look, rank

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
