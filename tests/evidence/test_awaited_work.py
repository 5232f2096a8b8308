"""Whose movement counts while the main thread waits: of what it may wait for, of nobody else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.process_facts import (
    Descriptor,
    FileLock,
    Frame,
    Kernel,
    Look,
    Sample,
    Socket,
    Syscall,
    Thread,
)
from hangbisect.evidence.movement import describe_movement
from hypothesis import given
from hypothesis import strategies as st

PID, CHILD, OTHER = 100, 200, 300
REMOTE = Socket(7, "tcp", "10.0.0.2:5000", "10.0.0.1:443", "ESTABLISHED", received=10, sent=10)
NEWS = Socket(8, "tcp", "10.0.0.2:5001", "10.0.0.9:80", "ESTABLISHED", received=0, sent=10)
HERE = replace(REMOTE, local="127.0.0.1:5000", peer="127.0.0.1:8000")
PIPE = Descriptor(4, "pipe", "pipe:[1]", other_ends=(CHILD,))
MINUS_ONE = (1 << 64) - 1


def to(socket: Socket) -> Descriptor:
    return Descriptor(3, "socket", f"socket:[{socket.inode}]", socket=socket)


def at_line(line: int, os_id: int = PID) -> Thread:
    return Thread(os_id, None, False, False, (Frame("work", "a.py", line),))


def seen(at: float, call: str, *waits: Descriptor, **about: Any) -> Look:
    """A look at a rank whose main thread is in the same call as before, and was not woken."""
    syscall = Syscall(0, call, about.pop("args", (3, 0, 0, 0, 0, 0)), descriptors=waits, stack=1)
    values: dict[str, Any] = {
        "threads": (at_line(1),),
        "kernel": (Kernel(PID, "python", "S", "", syscall),),
        "sample": Sample(at, PID, 1, "S", 0.0, 0, 0),
        "waits": 40,
    }
    values |= about
    return Look(at, PID, 1, "python", ("python", "t.py"), 50 + at, "S", "py-spy", **values)


def child(at: float, pid: int = CHILD, **about: Any) -> Look:
    """A look at a program below the rank that reads from the network."""
    values: dict[str, Any] = {"sockets": (replace(NEWS, received=int(at) * 50_000),)}
    values |= about
    parent = values.pop("ppid", PID)
    return Look(at, pid, parent, "fetch", ("fetch",), 60 + at, "S", "proc", **values)


def trickles(at: float, call: str, *waits: Descriptor, **about: Any) -> Look:
    sockets = (REMOTE, replace(NEWS, received=int(at) * 5000))
    return seen(at, call, *waits, sockets=sockets, **about)


# ---- healthy: it may wait for that ---------------------------------------------------------------


def test_a_download_counts_while_the_main_thread_waits_for_other_threads() -> None:
    looks = [trickles(at, "futex", args=(1, 0, 0, 0, 0, 0)) for at in range(3)]
    assert "receives" in describe_movement(looks)


def test_a_child_counts_whose_end_is_awaited_and_whoever_it_has_started() -> None:
    waits = [seen(at, "wait4", args=(CHILD, 0, 0, 0, 0, 0)) for at in range(3)]
    assert "its child fetch (200) receives" in describe_movement(waits, [[child(0), child(2)]])
    below = [child(at, OTHER, ppid=CHILD) for at in (0, 2)]
    quiet = [child(at, sockets=()) for at in (0, 2)]
    assert "fetch (300) receives" in describe_movement(waits, [quiet, below])


def test_any_child_counts_where_the_end_of_any_is_awaited() -> None:
    waits = [seen(at, "wait4", args=(MINUS_ONE, 0, 0, 0, 0, 0)) for at in range(3)]
    assert "fetch" in describe_movement(waits, [[child(0), child(2)]])


def test_a_child_counts_from_whose_pipe_or_socket_it_reads() -> None:
    reads = [seen(at, "read", PIPE) for at in range(3)]
    assert "fetch" in describe_movement(reads, [[child(0), child(2)]])
    answers = replace(HERE, peer_pids=(CHILD,), peer_names=("fetch",))
    asks = [seen(at, "recvfrom", to(answers)) for at in range(3)]
    assert "fetch" in describe_movement(asks, [[child(0), child(2)]])


def test_a_child_counts_for_which_the_awaited_child_waits_in_turn() -> None:
    waits = [seen(at, "wait4", args=(CHILD, 0, 0, 0, 0, 0)) for at in range(3)]
    pipe = Descriptor(0, "pipe", "pipe:[2]", other_ends=(OTHER,))
    reads = Kernel(CHILD, "sort", "S", "", Syscall(0, "read", (0,), descriptors=(pipe,)))
    sorts = [child(at, sockets=(), kernel=(reads,)) for at in (0, 2)]
    assert "fetch (300)" in describe_movement(waits, [sorts, [child(0, OTHER), child(2, OTHER)]])


def test_a_process_whose_parent_has_ended_counts() -> None:
    """What a program has left in the background may be what the next one waits for."""
    waits = [seen(at, "wait4", args=(CHILD, 0, 0, 0, 0, 0)) for at in range(3)]
    orphan = [child(at, OTHER, ppid=1) for at in (0, 2)]
    quiet = [child(at, sockets=()) for at in (0, 2)]
    assert "fetch (300) receives" in describe_movement(waits, [quiet, orphan])


def test_a_thread_of_its_own_may_feed_the_child_that_it_waits_for() -> None:
    waits = [trickles(at, "wait4", args=(CHILD, 0, 0, 0, 0, 0)) for at in range(3)]
    pipe = Descriptor(0, "pipe", "pipe:[2]", other_ends=(PID,))
    reads = Kernel(CHILD, "sort", "S", "", Syscall(0, "read", (0,), descriptors=(pipe,)))
    sorts = [child(at, sockets=(), kernel=(reads,)) for at in (0, 2)]
    assert "receives" in describe_movement(waits, [sorts])


@pytest.mark.parametrize("ends", [(PID,), ()])
def test_a_server_in_a_thread_of_its_own_counts_and_one_of_whom_nothing_is_known(
    ends: tuple[int, ...],
) -> None:
    looks = [trickles(at, "recvfrom", to(replace(HERE, peer_pids=ends))) for at in range(3)]
    assert "receives" in describe_movement(looks)


def test_the_lock_of_another_thread_or_of_nobody_knows_whom_may_be_given_up_by_anybody() -> None:
    for holder in (PID, None):
        lock = FileLock("/m.lock", 5, holder)
        looks = [trickles(at, "flock", locks=(lock,)) for at in range(3)]
        assert "receives" in describe_movement(looks)


def test_all_counts_once_the_main_thread_was_woken() -> None:
    looks = [trickles(at, "recvfrom", to(REMOTE), waits=40 + at) for at in range(3)]
    assert "receives" in describe_movement(looks)
    not_known = [trickles(at, "recvfrom", to(REMOTE), waits=None) for at in range(3)]
    assert "receives" in describe_movement(not_known)


def test_a_byte_on_the_awaited_socket_counts_whatever_else_moves() -> None:
    looks = [
        seen(at, "recvfrom", to(one), sockets=(one,))
        for at in range(3)
        if (one := replace(REMOTE, received=10 + at))
    ]
    assert describe_movement(looks) == "receives 1 byte/s from 10.0.0.1:443"


# ---- it does not wait for that -------------------------------------------------------------------


def test_a_subscription_that_trickles_feeds_no_wait_for_another_machine() -> None:
    looks = [trickles(at, "recvfrom", to(REMOTE)) for at in range(3)]
    assert describe_movement(looks) == ""
    polls = [trickles(at, "poll", to(REMOTE)) for at in range(3)]
    assert describe_movement(polls) == ""


def test_what_a_helper_reads_feeds_no_wait_for_another_machine() -> None:
    looks = [
        seen(
            at,
            "recvfrom",
            to(REMOTE),
            sample=Sample(at, PID, 1, "S", 0.0, read=at << 25, written=0),
        )
        for at in range(3)
    ]
    assert describe_movement(looks) == ""


def test_a_thread_at_new_places_feeds_no_pipe_of_a_child() -> None:
    looks = [seen(at, "poll", PIPE, threads=(at_line(1), at_line(at, 101))) for at in range(3)]
    assert describe_movement(looks) == ""


def test_another_child_feeds_neither_the_awaited_one_nor_another_machine() -> None:
    other = [child(0, OTHER), child(2, OTHER)]
    waits = [seen(at, "wait4", args=(CHILD, 0, 0, 0, 0, 0)) for at in range(3)]
    assert describe_movement(waits, [[child(0, sockets=())], other]) == ""
    asks = [seen(at, "recvfrom", to(REMOTE)) for at in range(3)]
    assert describe_movement(asks, [other]) == ""


def test_a_child_that_was_started_meanwhile_feeds_no_wait_that_was_there_before_it() -> None:
    waits = [seen(at, "wait4", args=(CHILD, 0, 0, 0, 0, 0)) for at in range(4)]
    born = replace(child(3, OTHER), age=1.0, command=("df", "/data"))
    awaited = [child(at, sockets=()) for at in range(4)]
    assert describe_movement(waits, [awaited, [born]]) == ""
    assert "was started" in describe_movement(
        [replace(one, waits=int(one.at)) for one in waits], [awaited, [born]]
    )


def test_a_child_that_is_not_among_those_looked_at_may_be_any_of_them() -> None:
    """Inside a container its processes have other numbers."""
    waits = [seen(at, "wait4", args=(7, 0, 0, 0, 0, 0)) for at in range(3)]
    assert "fetch" in describe_movement(waits, [[child(0), child(2)]])


def test_the_awaited_child_reads_nothing_over_a_socket_that_it_has_by_a_fork_alone() -> None:
    waits = [trickles(at, "wait4", args=(CHILD, 0, 0, 0, 0, 0)) for at in range(3)]
    forked = [child(at, sockets=(replace(NEWS, received=at * 50_000),)) for at in (0, 2)]
    assert describe_movement(waits, [forked]) == ""
    reads = Kernel(CHILD, "python", "S", "", Syscall(0, "recvfrom", (), descriptors=(to(NEWS),)))
    works = [replace(one, kernel=(reads,)) for one in forked]
    assert "fetch (200) receives" in describe_movement(waits, [works])


def test_the_lock_of_a_program_elsewhere_is_given_up_by_that_program() -> None:
    looks = [trickles(at, "flock", locks=(FileLock("/m.lock", 5, 77, "other"),)) for at in range(3)]
    assert describe_movement(looks) == ""


# ---- whatever the looks --------------------------------------------------------------------------

calls = st.sampled_from(["futex", "recvfrom", "read", "poll", "wait4", "flock", "waitid", ""])
ends = st.lists(st.sampled_from([PID, CHILD, OTHER, 1]), max_size=2).map(tuple)
waited = st.one_of(
    st.builds(lambda e: replace(PIPE, other_ends=e), ends),
    st.builds(
        lambda e, one: to(replace(one, peer_pids=e)), ends, st.sampled_from([REMOTE, HERE, NEWS])
    ),
)


@given(
    calls,
    st.lists(waited, max_size=3),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=2, max_size=5),
    st.lists(st.integers(0, MINUS_ONE), min_size=6, max_size=6).map(tuple),
    st.integers(0, 1),
)
def test_less_counts_while_the_main_thread_is_not_woken_and_never_more(
    call: str,
    waits: list[Descriptor],
    rows: list[tuple[int, int]],
    args: tuple[int, ...],
    parent: int,
) -> None:
    looks = [
        seen(
            at, call, *waits, args=args,
            threads=(at_line(1), at_line(line, 101)),
            sockets=(REMOTE, replace(NEWS, received=count * 9000)),
        )
        for at, (line, count) in enumerate(rows)
    ]  # fmt: skip
    children = [
        [child(0), child(1)],
        [child(at, OTHER, ppid=(PID, CHILD)[parent]) for at in (0, 1)],
    ]
    woken = [replace(one, waits=int(one.at)) for one in looks]
    if describe_movement(looks, children):
        assert describe_movement(woken, children)
