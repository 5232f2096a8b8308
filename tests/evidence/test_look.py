"""A look at processes, and who has the other ends where there is no time to ask them all."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base.process_facts import Descriptor, Kernel, Look, Socket, Syscall
from hangbisect.evidence import descriptors, other_ends
from hangbisect.evidence.look import PartialLook, Target, take_looks
from hangbisect.evidence.process import exit_code, words_of

from .own_threads import DEADLINE, wait_until

Start = Callable[..., subprocess.Popen[str]]


def waits(mine: Socket, known: dict[int, Socket]) -> PartialLook:
    descriptor = Descriptor(3, "socket", f"socket:[{mine.inode}]", socket=mine)
    call = Syscall(0, "poll", (), descriptors=(descriptor,))
    links = {3: f"socket:[{mine.inode}]"}
    return PartialLook(
        1.0, kernel=(Kernel(1, "python", "S", "", call),), links=links, sockets=known
    )


def test_ranks_find_one_another_though_the_others_were_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Socket(7, "tcp", "127.0.0.1:5000", "127.0.0.1:6000", "ESTABLISHED")
    other = Socket(8, "tcp", "127.0.0.1:6000", "127.0.0.1:5000", "ESTABLISHED")
    found = [waits(one, {7: one, 8: other}), waits(other, {7: one, 8: other})]

    async def too_late(*_: Any, **__: Any) -> None:
        raise TimeoutError

    monkeypatch.setattr(other_ends, "call_with_limit", too_late)
    asyncio.run(other_ends.find_other_ends([100, 101], found, time.monotonic()))
    sockets = [
        descriptor.socket
        for each in found
        for descriptor in other_ends.list_descriptors_in_calls(each)
    ]
    assert [socket.peer_pids for socket in sockets if socket] == [(101,), (100,)]
    assert all("outside the job" in each.missing[-1] for each in found)


def test_where_the_sockets_come_late_those_of_the_look_before_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine that has much else to do: who is at the other end stays the same."""
    with ExitStack() as stack:
        ends = [stack.enter_context(end) for end in socket.socketpair()]
        inodes = {os.fstat(end.fileno()).st_ino for end in ends}

        def shown() -> Look:
            (seen,) = asyncio.run(take_looks([Target(os.getpid(), python=False)], limit=1.0))
            return seen

        assert inodes <= {one.inode for one in shown().sockets}
        is_late = threading.Event()
        read = descriptors.read_sockets

        def read_late(*args: Any) -> dict[int, Socket]:
            is_late.wait(DEADLINE)
            return read(*args)

        monkeypatch.setattr(descriptors, "read_sockets", read_late)
        late = shown()
        is_late.set()
        assert inodes <= {one.inode for one in late.sockets}
        assert any("could not be listed in time" in why for why in late.missing)


# ---- looks at real processes ---------------------------------------------------------------------

ME = os.getpid()


def take(*targets: Target, **options: Any) -> list[Look]:
    return asyncio.run(take_looks(targets, limit=DEADLINE, **options))


def child(pid: int) -> Target:
    """A process of which no Python stacks are wanted."""
    return Target(pid, "child", python=False)


def look_until(target: Target, call: str) -> Look:
    """Return a look at a process once its main thread is in a system call."""
    wait_until(
        lambda: take(target),
        lambda looks: any(one.syscall and one.syscall.name == call for one in looks[0].kernel[:1]),
    )
    (found,) = take(target)  # sockets and locks of the first may have been listed before the call
    return found


def awaited(look: Look) -> Descriptor:
    call = look.kernel[0].syscall
    assert call is not None
    (found,) = call.descriptors
    return found


def python(start: Start, program: str, *words: object, **options: Any) -> subprocess.Popen[str]:
    options = {"stdin": subprocess.PIPE} | options
    return start(sys.executable, "-I", "-S", "-c", program, *words, **options)


def test_a_process_that_reads_from_a_pipe_waits_for_who_writes_to_it(start: Start) -> None:
    process = python(start, "import os; os.read(0, 1)", "--token=hunter2-hunter2")
    look = look_until(child(process.pid), "read")
    waits = awaited(look)
    assert (waits.kind, waits.other_ends) == ("pipe", (ME,))
    assert [(end.pid, end.ppid) for end in waits.ends] == [(ME, os.getppid())]
    assert (look.pid, look.ppid, look.state, look.rung) == (process.pid, ME, "S", "proc")
    assert 0 <= look.age < 3600
    assert look.missing == ()
    # A command line may hold a secret: its value is masked before anybody keeps it.
    assert look.command[:2] == (sys.executable, "-I")
    assert "hunter2" not in " ".join(look.command)
    assert look.sample is not None
    assert look.sample.pid == process.pid


def test_a_process_that_receives_over_tcp_waits_for_who_has_the_other_end(start: Start) -> None:
    program = (
        "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1])));"
        " s.recv(1)"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        process = python(start, program, port)
        with server.accept()[0]:
            look = look_until(child(process.pid), "recvfrom")
    one = awaited(look).socket
    assert one is not None
    assert (one.peer, one.state) == (f"127.0.0.1:{port}", "ESTABLISHED")
    # Its listener is in this process, too; and so is the end that was accepted.
    assert one.peer_pids == (ME,)
    assert one.peer_names == (Path("/proc/self/comm").read_text().strip(),)
    assert one in look.sockets
    assert look.network == os.readlink("/proc/self/ns/net")


def test_who_reads_a_connection_that_nobody_has_accepted_waits_for_who_listens(
    start: Start, tmp_path: Path
) -> None:
    """The kernel makes it, and keeps it for accept() (listen(2)): no process has its other end."""
    program = (
        "import socket, sys; place = sys.argv[1]; inside = place.isdecimal();"
        " s = socket.socket(socket.AF_INET if inside else socket.AF_UNIX);"
        " s.connect(('127.0.0.1', int(place)) if inside else place); s.recv(1)"
    )
    path = str(tmp_path / "s")
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(path)
        unix.listen()
        for place in (tcp.getsockname()[1], path):
            process = python(start, program, place)
            look = look_until(child(process.pid), "recvfrom")
            one = awaited(look).socket
            assert one is not None
            assert one.peer_pids == (ME,)
            assert one.peer.endswith(str(place))


def test_a_process_that_connects_in_vain_waits_for_who_listens(start: Start) -> None:
    """A listener whose queue is full lets a connection wait in SYN_SENT (listen(2))."""
    program = "import socket, sys; s = socket.socket(); s.connect(('127.0.0.1', int(sys.argv[1])))"
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = server.getsockname()[1]
        stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        process = python(start, program, port)
        look = look_until(child(process.pid), "connect")
        one = awaited(look).socket
    assert one is not None
    assert (one.peer, one.state, one.peer_pids) == (f"127.0.0.1:{port}", "SYN_SENT", (ME,))


def test_a_process_that_receives_from_a_unix_socket_waits_for_its_other_end(start: Start) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        program = "import socket, sys; socket.socket(fileno=int(sys.argv[1])).recv(1)"
        process = python(start, program, theirs.fileno(), pass_fds=[theirs.fileno()])
        theirs.close()
        look = look_until(child(process.pid), "recvfrom")
        inode = os.fstat(ours.fileno()).st_ino
    one = awaited(look).socket
    assert one is not None
    assert (one.family, one.peer_inode, one.peer_pids) == ("unix", inode, (ME,))


def test_a_process_that_waits_for_a_lock_on_a_file_waits_for_who_has_it(
    start: Start, tmp_path: Path
) -> None:
    program = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX)"
    with (tmp_path / "a.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        process = python(start, program, file.name)
        look_until(child(process.pid), "flock")
        look, mine = take(child(process.pid), child(ME))
        inode = os.fstat(file.fileno()).st_ino
    (lock,) = look.locks
    assert (lock.path, lock.inode, lock.holder, lock.waiting) == (file.name, inode, ME, True)
    assert lock.age is not None
    assert 0 <= lock.age < 3600
    assert look.holds == ()
    assert [one.path for one in mine.holds if one.inode == inode] == [file.name]


def test_the_logs_of_wandb_come_with_a_look_at_a_rank(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "wandb" / "run-1" / "logs"
    folder.mkdir(parents=True)
    path = folder / "debug-internal.log"
    path.write_text("2026-01-01 retry 3\nWANDB_API_KEY=0123456789abcdef0123456789abcdef01234567\n")
    program = "import os, sys; f = open(sys.argv[1]); os.read(0, 1)"
    process = python(start, program, path)
    look_until(child(process.pid), "read")
    rank, helper = take(Target(process.pid, "rank", python=False), child(process.pid))
    assert [(tail.path, tail.lines[0]) for tail in rank.logs] == [(str(path), "2026-01-01 retry 3")]
    assert "0123456789abcdef" not in rank.logs[0].lines[1]
    assert helper.logs == ()  # it is neither a rank nor of W&B


def test_a_zombie_has_its_status_and_who_is_gone_has_nothing(start: Start) -> None:
    process = python(start, "raise SystemExit(7)")
    wait_until(lambda: exit_code(process.pid), lambda code: code is not None)
    zombie, gone = take(Target(process.pid), Target(1 << 30))
    assert (zombie.state, zombie.status, zombie.threads) == ("Z", 7, ())
    assert (gone.state, gone.name, gone.missing) == ("", "", (f"{1 << 30} is gone.",))


SPINS = """
import threading, sys, time
def wait_for_rank_1():
    sys.stdin.read()
threading.Thread(target=time.sleep, args=(3600,), name="helper", daemon=True).start()
wait_for_rank_1()
"""


def test_a_rank_has_its_python_stacks_and_a_child_that_is_no_python_has_none(
    start: Start, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SPINS)
    process = start(sys.executable, "-I", "-S", script, stdin=subprocess.PIPE)
    look_until(child(process.pid), "read")
    sleeper = start("sleep", "3600")
    rank, other = take(Target(process.pid), Target(sleeper.pid, "child"))
    assert rank.main is not None
    assert [(one.name, one.line) for one in rank.main.frames] == [
        ("wait_for_rank_1", 4),
        ("<module>", 6),
    ]
    assert {one.name for one in rank.threads} == {"MainThread", "helper"}
    assert rank.rung == "py-spy"
    assert f"wait_for_rank_1 ({script.name}:4)" in rank.dump
    assert (other.threads, other.rung) == ((), "proc")
    assert not [one for one in other.missing if "stack" in one]


def test_where_nothing_reads_a_rank_from_outside_its_own_dump_counts(
    start: Start, tmp_path: Path
) -> None:
    """As of a rank that py-spy may not read; here it runs no Python at all."""
    dump = tmp_path / "stacks.txt"
    dump.write_text(
        "Timeout (0:01:00)!\nThread 0x00007f12 (most recent call first):\n"
        '  File "/a/train.py", line 7 in step\n'
    )
    process = start("sleep", "3600")
    wait_until(lambda: words_of(process.pid), lambda words: words[:1] == ("sleep",))
    (look,) = take(Target(process.pid, faulthandler_file=str(dump)))
    assert look.rung == "faulthandler"
    assert look.dump == dump.read_text()
    assert look.main is not None
    assert [(one.name, one.line) for one in look.main.frames] == [("step", 7)]
    assert look.missing == (f"{process.pid} is not running Python, or not yet.",)


def test_a_look_that_has_no_time_left_says_what_it_could_not_read(start: Start) -> None:
    process = python(start, "import os; os.read(0, 1)")
    look_until(child(process.pid), "read")
    (look,) = asyncio.run(take_looks([Target(process.pid)], limit=0.0))
    assert look.threads == ()
    assert f"No time was left for the Python stacks of {process.pid}." in look.missing
    assert (look.pid, look.state) == (process.pid, "S")


def test_earlier_connections_to_the_same_peer_that_were_closed_here_come_with_a_look() -> None:
    """A client that asks again and again leaves one behind for each question that timed out."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        address = server.getsockname()
        first = socket.create_connection(address)
        stack.enter_context(server.accept()[0])
        name = f"127.0.0.1:{first.getsockname()[1]}"
        first.close()
        stack.enter_context(socket.create_connection(address))
        (look,) = take(child(ME))
    assert [one.local for one in look.closed_here if one.peer == f"127.0.0.1:{address[1]}"] == [
        name
    ]
