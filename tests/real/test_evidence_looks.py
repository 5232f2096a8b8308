"""Real processes that really block, and what one look at them says."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base.process_facts import Descriptor, Look, Syscall
from hangbisect.evidence import kernel, lock_and_log_files, stacks
from hangbisect.evidence import look as reading
from hangbisect.evidence import process as sample
from hangbisect.evidence.look import Target, take_looks

DEADLINE = 60.0
Start = Callable[..., "subprocess.Popen[str]"]


def python(start: Start, code: str, *args: object) -> int:
    """Start Python on `code`; it says when it is about to block."""
    process = start(sys.executable, "-c", code, *args)
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    return int(process.pid)


def look_until(pid: int, good: Callable[[Look], Any], **about: Any) -> Look:
    """Look at a process until `good`, or until the deadline; return the last look."""
    end = time.monotonic() + DEADLINE
    while True:
        (seen,) = asyncio.run(take_looks([Target(pid, **about)]))
        if good(seen) or time.monotonic() > end:
            return seen
        time.sleep(0.05)


def call_of(seen: Look) -> Syscall:
    call = seen.kernel[0].syscall
    assert call is not None
    return call


def in_call(*names: str) -> Callable[[Look], bool]:
    def good(seen: Look) -> bool:
        call = seen.kernel[0].syscall if seen.kernel else None
        return call is not None and call.name in names and bool(seen.threads)

    return good


def only(call: Syscall) -> Descriptor:
    assert len(call.descriptors) == 1
    return call.descriptors[0]


def test_a_sleep_with_what_is_left_of_it(start: Start) -> None:
    pid = python(start, "import time\nprint('now', flush=True)\ntime.sleep(1000)")
    seen = look_until(pid, in_call("clock_nanosleep"))
    timeout = call_of(seen).timeout
    assert timeout is not None
    assert 0 < timeout <= 1000
    assert (seen.rung, seen.state, seen.missing) == ("py-spy", "S", ())
    assert seen.main is not None
    assert seen.main.frames[0].line == 3
    assert seen.command[0] == sys.executable
    assert seen.sample is not None
    assert seen.sample.pid == pid
    assert "<module>" in seen.dump


SERVER = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
other, _ = server.accept()
other.sendall(b"x" * 1000)
client.recv(1000)
print("now", flush=True)
"""


def test_a_recv_names_its_peer_counts_the_bytes_and_finds_who_holds_it(start: Start) -> None:
    pid = python(start, SERVER + "client.recv(1)")
    seen = look_until(pid, in_call("recvfrom"))
    socket = only(call_of(seen)).socket
    assert socket is not None
    assert (socket.family, socket.state, socket.received) == ("tcp", "ESTABLISHED", 1000)
    assert socket.peer.startswith("127.0.0.1:")
    assert socket.peer_pids == (pid,)
    assert len(seen.sockets) == 3
    assert seen.sample is not None
    assert seen.sample.received == 1000


def test_a_poll_with_its_sockets_and_time_limit(start: Start) -> None:
    pid = python(start, SERVER + "client.settimeout(900)\nclient.recv(1)")
    seen = look_until(pid, in_call("poll", "ppoll"))
    call = call_of(seen)
    assert call.timeout == pytest.approx(900, abs=1)
    assert only(call).socket is not None


def test_an_epoll_with_all_it_waits_for(start: Start) -> None:
    wait = "import select\nepoll = select.epoll()\nepoll.register(client, 1)\nepoll.poll()"
    pid = python(start, SERVER + wait)
    seen = look_until(pid, in_call("epoll_wait", "epoll_pwait"))
    epoll, waited = call_of(seen).descriptors
    assert epoll.kind == "anon"
    assert waited.socket is not None
    assert call_of(seen).timeout is None
    assert "epoll" in kernel.reason_not_to_pause(seen.kernel)


def test_a_select_with_the_descriptors_in_its_set(start: Start) -> None:
    pid = python(start, SERVER + "import select\nselect.select([client, other], [], [], 800)")
    seen = look_until(pid, in_call("select", "pselect6"))
    assert len(call_of(seen).descriptors) == 2
    assert call_of(seen).timeout is not None


def test_a_unix_socket_has_its_path_and_its_other_end(start: Start, tmp_path: Path) -> None:
    code = """
import os, socket, sys
os.chdir(sys.argv[1])
server = socket.socket(socket.AF_UNIX)
server.bind("s")
server.listen()
client = socket.socket(socket.AF_UNIX)
client.connect("s")
other, _ = server.accept()
if os.fork() == 0:
    client.close()
    other.recv(1)
other.close()
print("now", flush=True)
client.recv(1)
"""
    pid = python(start, code, tmp_path)
    (child,) = sample.family([pid])
    seen = look_until(pid, in_call("recvfrom"))
    socket = only(call_of(seen)).socket
    assert socket is not None
    assert (socket.family, socket.peer) == ("unix", "s")
    assert socket.peer_pids == (child,)


def test_a_pipe_names_who_could_write(start: Start) -> None:
    code = """
import os, time
r, w = os.pipe()
if os.fork() == 0:
    os.close(r)
    time.sleep(1000)
os.close(w)
print("now", flush=True)
os.read(r, 1)
"""
    pid = python(start, code)
    (child,) = sample.family([pid])
    pipe = only(call_of(look_until(pid, in_call("read"))))
    assert (pipe.kind, pipe.other_ends) == ("pipe", (child,))


def test_opening_a_fifo_gives_its_path(start: Start, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    pid = python(start, "import sys\nprint('now', flush=True)\nopen(sys.argv[1])", fifo)
    seen = look_until(pid, in_call("open", "openat"))
    assert call_of(seen).path == str(fifo)
    assert seen.kernel[0].wchan == "wait_for_partner"


def test_reading_a_fifo_finds_its_writer(start: Start, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = "import os, sys\nfd = os.open(sys.argv[1], os.O_RDWR)\nprint('now', flush=True)\n"
    writer = python(start, code + "import time\ntime.sleep(1000)", fifo)
    reader = python(start, code + "os.read(os.open(sys.argv[1], os.O_RDONLY), 1)", fifo)
    found = only(call_of(look_until(reader, in_call("read"))))
    assert (found.kind, found.path) == ("fifo", str(fifo))
    assert writer in found.other_ends


def test_a_terminal_is_told_from_a_file(start: Start) -> None:
    code = """
import os, pty
_, terminal = pty.openpty()
print("now", flush=True)
os.read(terminal, 1)
"""
    assert only(call_of(look_until(python(start, code), in_call("read")))).kind == "tty"


LOCK = """
import fcntl, sys, time
file = open(sys.argv[1], "a")
"""


def test_a_flock_names_the_file_and_its_holder(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "a file.lock"
    take = "fcntl.flock(file, fcntl.LOCK_EX)\n"
    holder = python(start, LOCK + take + "print('now', flush=True)\ntime.sleep(1000)", path)
    waiter = python(start, LOCK + "print('now', flush=True)\n" + take, path)
    seen = look_until(waiter, lambda one: one.locks and one.locks[0].waiting)
    (lock,) = seen.locks
    assert (lock.path, lock.holder, lock.waiting) == (str(path), holder, True)
    assert only(call_of(seen)).path == str(path)
    (held,) = look_until(holder, lambda one: one.holds).holds
    assert held.path == str(path)
    assert held in lock_and_log_files.find_all_held_locks()


def test_a_posix_lock_names_its_holder_too(start: Start, tmp_path: Path) -> None:
    take = "fcntl.lockf(file, fcntl.LOCK_EX)\n"
    path = tmp_path / "lock"
    holder = python(start, LOCK + take + "print('now', flush=True)\ntime.sleep(1000)", path)
    waiter = python(start, LOCK + "print('now', flush=True)\n" + take, path)
    (lock,) = look_until(waiter, lambda one: one.locks and one.locks[0].waiting).locks
    assert (lock.path, lock.holder, lock.waiting) == (str(path), holder, True)


def test_a_lock_that_a_child_inherited_is_found_when_its_taker_is_gone(
    start: Start, tmp_path: Path
) -> None:
    path = tmp_path / "lock"
    inherit = """
import os
fcntl.flock(file, fcntl.LOCK_EX)
if os.fork():
    os._exit(0)
print('now', flush=True)
time.sleep(1000)
"""
    parent = start(sys.executable, "-c", LOCK + inherit, path)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "now\n"
    os.waitpid(parent.pid, 0)
    waiter = python(
        start, LOCK + "print('now', flush=True)\nfcntl.flock(file, fcntl.LOCK_EX)", path
    )
    (lock,) = look_until(waiter, in_call("flock")).locks
    assert lock.holder not in (None, parent.pid, waiter)


def test_a_file_that_is_polled_for_is_told_from_one_that_is_waited_for(
    start: Start, tmp_path: Path
) -> None:
    path = tmp_path / "lock"
    take = "fcntl.flock(file, fcntl.LOCK_EX)\n"
    holder = python(start, LOCK + take + "print('now', flush=True)\ntime.sleep(1000)", path)
    poller = python(start, LOCK + "print('now', flush=True)\ntime.sleep(1000)", path)
    (lock,) = look_until(poller, lambda one: one.locks).locks
    assert (lock.holder, lock.waiting) == (holder, False)


@pytest.mark.parametrize("library", ["CDLL", "PyDLL"])
def test_a_c_call_with_and_without_the_gil(start: Start, library: str) -> None:
    code = f"import ctypes\nprint('now', flush=True)\nctypes.{library}(None).pause()"
    seen = look_until(python(start, code), in_call("pause", "ppoll"))
    assert seen.main is not None
    assert seen.main.owns_gil is (library == "PyDLL")


def test_a_lock_of_python_is_a_futex_with_its_time_limit(start: Start) -> None:
    code = (
        "import threading\nlock = threading.Lock()\nlock.acquire()\n"
        "print('now', flush=True)\nlock.acquire(timeout=700)"
    )
    seen = look_until(python(start, code), in_call("futex"))
    timeout = call_of(seen).timeout
    assert timeout is not None
    assert 0 < timeout <= 700


def test_a_stopped_process_is_seen_with_its_stack(start: Start) -> None:
    pid = python(start, "import time\nprint('now', flush=True)\ntime.sleep(1000)")
    os.kill(pid, signal.SIGSTOP)
    seen = look_until(pid, lambda one: one.state == "T" and one.threads)
    assert seen.main is not None
    assert kernel.reason_not_to_pause(seen.kernel) == "it is stopped"
    assert seen.state == "T"


def test_a_spin_is_running(start: Start) -> None:
    pid = python(start, "print('now', flush=True)\nwhile True: pass")
    seen = look_until(pid, lambda one: one.state == "R" and one.threads)
    assert seen.state == "R"
    assert seen.main is not None
    assert seen.main.frames[0].line == 2


def test_a_child_that_is_waited_for_is_in_the_family_and_gives_no_noise(start: Start) -> None:
    code = "import subprocess\nprint('now', flush=True)\nsubprocess.run(['sleep', '1000'])"
    pid = python(start, code)
    seen = look_until(pid, in_call("wait4"))
    (child,) = sample.family([pid])
    assert sample.family([pid]) == {child: pid}
    assert call_of(seen).args[0] == child
    sleeping = look_until(child, lambda one: one.kernel and one.name == "sleep", role="child")
    assert (sleeping.rung, sleeping.missing, sleeping.ppid) == ("proc", (), pid)
    assert sleeping.command == ("sleep", "1000")


IN_THE_KERNEL = """
import os, sys
print("now", flush=True)
# The C library starts it as vfork does: this process is in state D until the child has opened.
os.posix_spawn("/bin/true", ["true"], {}, file_actions=[
    (os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)])
"""


def test_a_process_in_the_kernel_is_looked_at_in_time(start: Start, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    pid = python(start, IN_THE_KERNEL, tmp_path / "fifo")
    seen = look_until(pid, lambda one: one.state == "D" and one.threads)
    assert seen.state == "D"
    assert seen.main is not None
    assert "kernel" in kernel.reason_not_to_pause(seen.kernel)


def test_a_process_that_is_gone_and_a_zombie_are_said_so(start: Start) -> None:
    process = start(sys.executable, "-c", "raise SystemExit(7)")
    end = time.monotonic() + DEADLINE
    while sample.exit_code(process.pid) is None and time.monotonic() < end:
        time.sleep(0.01)
    assert sample.exit_code(process.pid) == 7
    assert sample.sample(process.pid) is None
    assert look_until(process.pid, lambda one: True).state == "Z"
    process.communicate()
    gone = look_until(process.pid, lambda one: True)
    assert (gone.state, gone.threads) == ("", ())
    assert gone.missing
    assert sample.started(process.pid) is None


def test_the_signal_that_ended_a_zombie(start: Start) -> None:
    process = start("sleep", "1000")
    process.kill()
    end = time.monotonic() + DEADLINE
    while sample.exit_code(process.pid) is None and time.monotonic() < end:
        time.sleep(0.01)
    assert sample.exit_code(process.pid) == -signal.SIGKILL


def test_our_own_pause_is_not_taken_for_somebody_elses(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_safe = reading.read_safe

    def read_at_the_worst_time(pid: int, *more: Any) -> None:
        end = time.monotonic() + 1.0
        while not kernel.read_status(pid).tracer and time.monotonic() < end:
            time.sleep(0.001)
        read_safe(pid, *more)

    monkeypatch.setattr("hangbisect.evidence.look.read_safe", read_at_the_worst_time)
    pid = python(start, "import time\nprint('now', flush=True)\ntime.sleep(1000)")
    (seen,) = asyncio.run(take_looks([Target(pid)], native=True))
    assert (seen.state, seen.traced_by) == ("S", 0)
    assert seen.kernel[0].state == "S"
    assert any(frame.native for thread in seen.threads for frame in thread.frames)


def test_native_frames_are_marked_and_the_process_goes_on(start: Start) -> None:
    pid = python(start, "import time\nprint('now', flush=True)\ntime.sleep(1000)")
    look_until(pid, in_call("clock_nanosleep"))
    (seen,) = asyncio.run(take_looks([Target(pid)], native=True))
    assert seen.main is not None
    assert {frame.native for frame in seen.main.frames} == {True, False}
    after = look_until(pid, in_call("clock_nanosleep"))
    assert after.state == "S"


def test_without_py_spy_the_kernel_part_and_faulthandler_remain(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "find_program", lambda name="py-spy": None)
    code = """
import faulthandler, sys, threading, time
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
file = open(sys.argv[1], "w")
faulthandler.dump_traceback_later(0.1, file=file)
print("now", flush=True)
time.sleep(1000)
"""
    pid = python(start, code, tmp_path / "stacks")
    seen = look_until(pid, lambda one: one.threads, faulthandler_file=str(tmp_path / "stacks"))
    assert seen.rung == "faulthandler"
    assert seen.main is not None
    assert (seen.main.frames[0].name, seen.main.frames[0].line) == ("<module>", 7)
    assert len(seen.threads) == 2
    assert "py-spy is not installed: no Python stacks." in seen.missing
    assert "Timeout" in seen.dump
    assert (
        asyncio.run(stacks.why_py_spy_cannot_look(pid))
        == "py-spy is not installed: no Python stacks."
    )


def test_a_look_ends_in_time_when_py_spy_does_not(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "py-spy"
    # It gets: dump --json --pid PID --nonblocking.
    slow.write_text("#!/bin/sh\nkill -STOP $4\nexec sleep 1000\n")
    slow.chmod(0o755)
    monkeypatch.setattr(
        stacks, "find_program", lambda name="py-spy": str(slow) if name == "py-spy" else None
    )
    pid = python(start, "import time\nprint('now', flush=True)\ntime.sleep(1000)")
    resumed: list[int] = []
    (seen,) = asyncio.run(take_looks([Target(pid)], limit=1.0, resume=resumed.append))
    os.kill(pid, signal.SIGCONT)
    assert seen.threads == ()
    assert resumed == [pid]
    assert any("was killed" in sentence for sentence in seen.missing)


def test_can_look_says_why_not(start: Start) -> None:
    other = start("sleep", "1000")
    pid = python(start, "import time\nprint('now', flush=True)\ntime.sleep(1000)")
    assert asyncio.run(stacks.why_py_spy_cannot_look(pid)) == ""
    assert asyncio.run(stacks.why_py_spy_cannot_look(other.pid)) != ""
