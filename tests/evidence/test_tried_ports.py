"""Ports that loops of the job's own try to bind, as their sources tell."""

from __future__ import annotations

from pathlib import Path

from hangbisect.base.process_facts import Frame, Socket, Thread
from hangbisect.evidence.other_ends import find_awaited_ports
from hangbisect.evidence.tried_ports import list_tried_ports, names_a_port

SOURCE = """
def is_free(number):
    with socket.socket() as one:
        one.bind(("127.0.0.1", number))

def wait_until_free(port):
    while not is_free(port):
        time.sleep(1)

def open_itself(metrics_port, steps):
    while True:
        try:
            return socket.create_server(("", metrics_port))
        except OSError:
            time.sleep(1)

def asks(port):
    while not answers(port):
        time.sleep(1)

def once(port):
    is_free(port)
    time.sleep(60)

def waits_at_an_address(host, port):
    address = (host, port)
    while True:
        with suppress(OSError):
            server.bind(address)
            return
        time.sleep(1)

def trains(master_port, steps):
    for step in range(steps):
        logger.bind(step=step, port=master_port).info("step")
        time.sleep(1)

def finds_any(first_port):
    for port in range(first_port, first_port + 50):
        if is_free(port):
            return port
        time.sleep(1)
"""


def tried(folder: Path, function: str, line: int, **numbers: int) -> frozenset[int]:
    file = folder / "exporter.py"
    file.write_text(SOURCE)
    frame = Frame(function, str(file), line, numbers=tuple(numbers.items()))
    thread = Thread(7, "MainThread", False, False, (Frame("sleep", "", 0, native=True), frame))
    assert names_a_port([thread]) == any("port" in name for name in numbers)
    return list_tried_ports([thread])


def test_a_loop_that_asks_whether_it_may_bind_waits_for_the_port(tmp_path: Path) -> None:
    assert tried(tmp_path, "wait_until_free", 8, port=9400) == {9400}
    assert tried(tmp_path, "open_itself", 15, metrics_port=9401, steps=3) == {9401}
    assert tried(tmp_path, "waits_at_an_address", 31, port=9402) == {9402}


def test_other_loops_and_other_numbers_wait_for_no_port(tmp_path: Path) -> None:
    assert tried(tmp_path, "asks", 19, port=9400) == set()
    assert tried(tmp_path, "once", 23, port=9400) == set()
    assert tried(tmp_path, "wait_until_free", 8, steps=9400) == set()


def test_a_loop_waits_for_no_port_that_it_binds_nothing_to(tmp_path: Path) -> None:
    assert tried(tmp_path, "trains", 36, master_port=29_500, steps=3) == set()
    assert tried(tmp_path, "finds_any", 42, first_port=9400, port=9401) == set()
    assert tried(tmp_path, "open_itself", 15, metrics_port=9401, other_port=80) == {9401}


def test_only_where_somebody_listens_the_port_is_taken() -> None:
    listens = {11: Socket(11, "tcp", "0.0.0.0:9400", state="LISTEN")}
    assert find_awaited_ports([], listens, {9400, 9401}) == {9400: 11}
