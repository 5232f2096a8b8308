"""Ports that a process waits for, by the locals of the function that asks for them."""

from __future__ import annotations

from hangbisect.base.process_facts import Frame, Socket, Thread
from hangbisect.evidence.other_ends import find_awaited_ports

WAITS = "/v/site-packages/sglang/srt/utils/common.py"


def thread(file: str = WAITS, port: str = "30000") -> Thread:
    frame = Frame("wait_port_available", file, 42, locals=(("port", port),))
    return Thread(7, "MainThread", False, False, (frame,))


LISTENS = {
    11: Socket(11, "tcp", "127.0.0.1:30000", state="LISTEN"),
    12: Socket(12, "tcp", "127.0.0.1:30001", state="LISTEN"),
    13: Socket(13, "tcp", "127.0.0.1:30002", "127.0.0.1:9", state="ESTABLISHED"),
}


def test_the_socket_that_listens_there_is_found() -> None:
    assert find_awaited_ports([thread()], LISTENS) == {30000: 11}


def test_a_port_at_which_nobody_listens_is_not_taken() -> None:
    assert find_awaited_ports([thread(port="30002"), thread(port="30003")], LISTENS) == {}


def test_other_functions_have_ports_as_well() -> None:
    assert find_awaited_ports([thread("/home/ada/ports.py"), thread(port="x")], LISTENS) == {}
