"""Addresses of message queues in the memory of a process, and which of them nobody serves."""

from __future__ import annotations

from hangbisect.base import process_facts
from hangbisect.base.process_facts import Descriptor, Kernel, Socket, Syscall
from hangbisect.evidence import other_ends
from hypothesis import given
from hypothesis import strategies as st

LISTENS = Socket(1, "unix", "/tmp/a.sock", "", "LISTEN")
SERVES = Socket(2, "tcp", "0.0.0.0:5555", "", "LISTEN")
CONNECTED = Socket(3, "unix", "", "/tmp/a.sock", "ESTABLISHED", peer_inode=4)
EVENT = Descriptor(6, "anon", "anon_inode:[eventfd]")
MAPS = """\
55d0c0000000-55d0c0021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000021000 rw-p 00000000 00:00 0 
7f0000021000-7f0004000000 ---p 00000000 00:00 0 
7f0012345000-7f0092345000 rw-p 00000000 00:00 0 
7f0100000000-7f0100001000 rw-p 00000000 08:01 77                         /usr/lib/libx.so
garbage
"""  # noqa: W291  # proc(5) ends these lines so


def thread(*sockets: Socket, timeout: float | None) -> Kernel:
    found = tuple(Descriptor(9, "socket", "socket:[1]", socket=one) for one in sockets)
    call = Syscall(232, "epoll_wait", (7,), timeout=timeout, descriptors=(EVENT, *found))
    return Kernel(11, "ZMQbg/IO/0", "S", "do_epoll_wait", call)


def test_the_heaps_of_malloc_are_read_and_nothing_else() -> None:
    assert other_ends.parse_heaps(MAPS) == [
        (0x7F0000000000, 0x21000),
        (0x55D0C0000000, 0x21000),
    ]


def test_addresses_are_texts_that_end_where_c_ends_them() -> None:
    data = b"\x01ipc:///tmp/a.sock\0xtcp://127.0.0.1:5555\0ipc://cut-off"
    assert other_ends.find_addresses(data) == ("ipc:///tmp/a.sock", "tcp://127.0.0.1:5555")


@given(st.binary(max_size=200))
def test_whatever_memory_holds_is_searched(data: bytes) -> None:
    for address in other_ends.find_addresses(data):
        assert address.startswith(("ipc://", "tcp://"))


def test_an_address_is_unserved_where_no_socket_listens() -> None:
    named = (
        *("ipc:///tmp/a.sock", "ipc:///tmp/b.sock", "ipc://@b", "tcp://127.0.0.1:5555"),
        *("tcp://localhost:6666", "tcp://10.255.0.9:7777", "tcp://*:8888", "ipc://*"),
    )
    known = {1: LISTENS, 2: SERVES, 3: CONNECTED}
    assert other_ends.select_unserved(named, known) == (
        "ipc:///tmp/b.sock",
        "ipc://@b",
        "tcp://localhost:6666",
    )
    # In a network of its own nobody tells of Unix sockets.
    assert other_ends.select_unserved(named, {2: SERVES}) == ("tcp://localhost:6666",)


def test_it_tries_to_connect_where_it_has_no_connection_and_a_time_limit() -> None:
    assert process_facts.tries_to_connect((thread(timeout=0.1),))
    assert not process_facts.tries_to_connect((thread(timeout=None),))
    assert not process_facts.tries_to_connect((thread(CONNECTED, timeout=0.1),))
    assert not process_facts.tries_to_connect((thread(LISTENS, timeout=0.1),))
    assert not process_facts.tries_to_connect(())
