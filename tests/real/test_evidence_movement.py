"""What moves between looks at real processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import pytest
from hangbisect.base.process_facts import Look
from hangbisect.evidence import process as sample
from hangbisect.evidence.look import Target, take_looks
from hangbisect.evidence.movement import CodePlace, collect_places, describe_movement, is_busy

DEADLINE = 60.0
Start = Callable[..., "subprocess.Popen[str]"]

SOCKETS = """
import os, socket, threading, time
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
other, _ = server.accept()
def in_a_child(work):
    if os.fork() == 0:
        work()
        os._exit(0)
def now():
    print("now", flush=True)
"""


def python(start: Start, code: str, *args: object) -> int:
    """Start Python on `code`; it says when it is about to do what it does for ever."""
    process = start(sys.executable, "-c", code, *args)
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    return int(process.pid)


def looks(pid: int, count: int, pause: float, settle: float = 0.5) -> list[Look]:
    """Look several times at a process that did what it does for a while."""

    async def body() -> list[Look]:
        await asyncio.sleep(settle)
        found = []
        for _ in range(count):
            found += await take_looks([Target(pid)])
            await asyncio.sleep(pause)
        return found

    return asyncio.run(body())


def until_moved(pid: int, part: str, children: Sequence[int] = ()) -> str:
    """Look until what moved is as wanted, or until the deadline; return it."""
    end = time.monotonic() + DEADLINE
    targets = [Target(pid), *(Target(child, "child") for child in children)]
    while True:
        first = asyncio.run(take_looks(targets))
        time.sleep(0.5)
        second = asyncio.run(take_looks(targets))
        pairs = list(zip(first, second, strict=True))
        text = describe_movement(pairs[0], pairs[1:])
        if part in text or time.monotonic() > end:
            return text


@pytest.mark.parametrize(
    "code",
    [
        "import time\nprint('now', flush=True)\ntime.sleep(1000)",
        SOCKETS + "now()\nclient.recv(1)",
        "print('now', flush=True)\nimport os\nos.read(os.pipe()[0], 1)",
        "import subprocess\nprint('now', flush=True)\nsubprocess.run(['sleep', '1000'])",
        "import ctypes\nprint('now', flush=True)\nctypes.PyDLL(None).pause()",
    ],
    ids=["sleep", "recv", "pipe", "child", "gil"],
)
def test_nothing_moves_in_a_process_that_hangs(start: Start, code: str) -> None:
    seen = looks(python(start, code), 4, 0.3)
    assert describe_movement(seen) == ""
    assert not is_busy(seen)


def test_a_trickle_on_the_awaited_socket_moves(start: Start) -> None:
    code = """
def trickle():
    while True:
        other.sendall(b"x")
        time.sleep(0.2)
in_a_child(trickle)
now()
while True:
    client.recv(1)
"""
    text = until_moved(python(start, SOCKETS + code), "receives")
    assert "bytes/s from 127.0.0.1:" in text


POLLS = """
def answer():
    while True:
        other.sendall(other.recv(100))
in_a_child(answer)
def ask():
    while True:
        client.sendall(b"ready? " * 10)
        client.recv(100)
        time.sleep(0.02)
"""


@pytest.mark.parametrize(
    "code",
    ["now()\nask()", "threading.Thread(target=ask, daemon=True).start()\nnow()\ntime.sleep(1000)"],
    ids=["in the main thread", "beside it"],
)
def test_polling_stops_being_movement_once_its_places_are_known(start: Start, code: str) -> None:
    pid = python(start, SOCKETS + POLLS + code)
    known: frozenset[CodePlace] = frozenset()
    seen: list[Look] = []
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        seen = looks(pid, 4, 0.2, settle=0)
        if not describe_movement(seen, seen=known):
            break
        known |= collect_places(seen)
    assert describe_movement(seen, seen=known) == ""


def test_a_trickle_through_a_pipe_moves(start: Start) -> None:
    code = """
r, w = os.pipe()
def trickle():
    while True:
        os.write(w, b"x")
        time.sleep(0.1)
in_a_child(trickle)
now()
while True:
    os.read(r, 1)
"""
    assert "pipe:[" in until_moved(python(start, SOCKETS + code), "reads")


def test_a_download_in_a_child_moves(start: Start) -> None:
    code = """
import subprocess
in_a_child(lambda: [other.sendall(bytes(20000)) or time.sleep(0.01) for _ in iter(int, 1)])
def download():
    while True:
        client.recv(65536)
in_a_child(download)
now()
time.sleep(1000)
"""
    pid = python(start, SOCKETS + code)
    text = until_moved(pid, "receives", [*sample.family([pid])])
    assert "its child python" in text


def test_a_loop_is_busy_once_its_places_are_known(start: Start) -> None:
    pid = python(start, "print('now', flush=True)\nwhile True:\n    x = 1\n    y = 2\n")
    known: frozenset[CodePlace] = frozenset()
    seen: list[Look] = []
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        seen = looks(pid, 4, 0.3, settle=0)
        if is_busy(seen, moved=describe_movement(seen, seen=known)):
            break
        known |= collect_places(seen)
    assert is_busy(seen, moved=describe_movement(seen, seen=known))


def test_new_code_moves(start: Start) -> None:
    lines = "".join("time.sleep(0.2)\n" for _ in range(500))
    text = until_moved(python(start, "import time\nprint('now', flush=True)\n" + lines), "new code")
    assert "new code (<module>, <string>:" in text


POLLS_NATIVELY = """
import os, sys, threading
def poll():
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as file:
        file.write(sys.argv[1])
    print("now", flush=True)
    while True:
        os.getppid()
threading.Thread(target=poll, daemon=True).start()
threading.Event().wait()
"""


@pytest.mark.parametrize(("name", "busy"), [("TP_SHM_reactor", False), ("computes", True)])
def test_a_thread_of_tensorpipe_that_polls_makes_no_process_busy(
    start: Start, name: str, busy: bool
) -> None:
    """One of torch.distributed.rpc is always on a core, also in a job that is dead."""
    found = looks(python(start, POLLS_NATIVELY, name), 3, 1.0)
    assert is_busy(found, moved=describe_movement(found)) is busy
    assert found[-1].sample is not None
    assert bool(found[-1].sample.polling) is not busy
