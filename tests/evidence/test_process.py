"""A process as /proc has it; whether it has ended, with pidfds and without: real processes."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from hangbisect.base.proc import list_pids, read_stat
from hangbisect.evidence.descriptors import read_sockets
from hangbisect.evidence.process import (
    ProcessMemory,
    descendants,
    exit_code,
    family,
    find_polling_threads,
    marked,
    open_life,
    parse_preloaded,
    read_preloaded,
    read_trace_permission,
    runs_python,
    sample,
    started,
    uid_of,
    variables_of,
    words_of,
)

from .own_threads import LIBC, thread_in, wait_until

DEADLINE = 60.0
SLEEP = "import time; time.sleep(3600)"
Start = Callable[..., subprocess.Popen[str]]
WITHOUT = Path(__file__).parents[1] / "real" / "without_syscalls.py"

# What each of these prints is compared between a kernel with pidfds and one without.
LIVES = f"""
import importlib, os, runpy, signal, subprocess, sys, time
if importlib.util.find_spec("hangbisect") is None:
    runpy.run_path(sys.argv[1] + "/bisect/__main__.py", run_name="checkout")
from hangbisect.evidence.process import open_life
from hangbisect.base.proc import read_stat
from hangbisect.evidence.process import started
from hangbisect.monitor.ending import is_alive, signal_process
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", {SLEEP!r}])
life = open_life(child.pid)
ticks = started(child.pid)
print("pidfd" if life.descriptor is not None else "no pidfd")
print("runs", not life.has_ended(), is_alive(child.pid))
print("an earlier one of its pid has ended", open_life(child.pid, ticks - 1).has_ended())
print("sent to an earlier one", signal_process(child.pid, ticks - 1, signal.SIGKILL))
print("sent", signal_process(child.pid, ticks, signal.SIGKILL))
while read_stat(child.pid).state not in "ZX":
    time.sleep(0.02)
print("zombie has ended", life.has_ended(), not is_alive(child.pid))
child.wait()
print("nobody has ended", life.has_ended(), not is_alive(child.pid),
    open_life(child.pid).has_ended())
print("sent to nobody", signal_process(child.pid, ticks, signal.SIGKILL))
life.close(); life.close()
"""
SAID = """\
runs True True
an earlier one of its pid has ended True
sent to an earlier one False
sent True
zombie has ended True True
nobody has ended True True True
sent to nobody False
"""


def python(start: Start, program: str) -> subprocess.Popen[str]:
    return start(sys.executable, "-I", "-S", "-c", program)


@pytest.mark.parametrize(
    ("refusal", "first"),
    [
        ([], "pidfd"),
        (["pidfd_open"], "no pidfd"),
        (["--errno", "EPERM", "pidfd_open"], "no pidfd"),
        (["--errno", "EMFILE", "pidfd_open"], "no pidfd"),
        (["--errno", "EPERM", "pidfd_send_signal"], "pidfd"),
    ],
)
def test_it_is_told_alike_with_pidfds_and_without(
    start: Start, checkout: Path, refusal: list[str], first: str
) -> None:
    before = [sys.executable, str(WITHOUT), *refusal] if refusal else []
    said, complaint = start(*before, sys.executable, "-c", LIVES, str(checkout)).communicate(
        timeout=DEADLINE
    )
    assert (said, complaint) == (f"{first}\n{SAID}", "")


def test_the_descriptor_is_readable_once_it_has_ended(start: Start) -> None:
    process = python(start, SLEEP)
    life = open_life(process.pid)
    assert life.started == started(process.pid)
    assert not life.has_ended()
    process.kill()
    end = time.monotonic() + DEADLINE
    while not life.has_ended():
        assert time.monotonic() < end
        time.sleep(0.02)
    life.close()
    assert life.has_ended()


def test_after_close_it_is_still_told(start: Start) -> None:
    process = python(start, SLEEP)
    life = open_life(process.pid)
    life.close()
    assert life.descriptor is None
    assert not life.has_ended()
    process.kill()
    process.wait(DEADLINE)
    assert life.has_ended()


@pytest.mark.parametrize(
    ("program", "status"), [("os._exit(7)", 7), ("os.kill(os.getpid(), 9)", -9)]
)
def test_a_status_that_the_parent_took_is_told_by_the_descriptor(
    start: Start, program: str, status: int
) -> None:
    process = python(start, f"import os, time; time.sleep(2); {program}")
    life = open_life(process.pid)
    process.wait(DEADLINE)
    if (told := life.exit_code()) is None:
        pytest.skip("a kernel below 6.15")
    assert told == status
    life.close()
    assert life.exit_code() is None


def test_a_process_whose_main_thread_has_ended_goes_on(start: Start) -> None:
    program = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(3600,)).start()\n"
        "print(flush=True)\n"
        "ctypes.CDLL(None).syscall(60 if __import__('os').uname().machine == 'x86_64' else 93, 0)\n"
    )
    process = python(start, program)
    assert process.stdout is not None
    process.stdout.readline()
    end = time.monotonic() + DEADLINE
    while " Z (zombie)" not in Path(f"/proc/{process.pid}/status").read_text().replace("\t", " "):
        assert time.monotonic() < end
        time.sleep(0.02)
    life = open_life(process.pid)
    assert not life.has_ended()
    life.close()
    assert not life.has_ended()
    os.kill(process.pid, signal.SIGKILL)


def test_a_pid_that_cannot_be_is_a_life_that_has_ended() -> None:
    assert open_life(1 << 40).has_ended()
    assert open_life(2**22 + 1).has_ended()
    assert open_life(0).has_ended()
    assert open_life(-1).has_ended()


def test_preloaded_libraries_are_split_as_the_loader_does() -> None:
    assert parse_preloaded("/a/libx.so:libjemalloc.so.2 /b/y.so", "/etc/z.so\n# not this\n") == (
        *("/a/libx.so", "libjemalloc.so.2", "/b/y.so"),
        "/etc/z.so",
    )
    assert parse_preloaded("", "") == ()


# ---- what /proc says of a process ----------------------------------------------------------------


@pytest.fixture
def shell(start: Start) -> tuple[subprocess.Popen[str], int, int]:
    """A shell, its child, and what that started; none of them does anything."""
    inner = f"import subprocess; p = subprocess.Popen(['sleep', '{DEADLINE * 60:.0f}']);"
    inner += " print(p.pid, flush=True); p.wait()"
    process = start("sh", "-c", f'{sys.executable} -I -S -c "$1" ; true', "sh", inner)
    assert process.stdout is not None
    below = int(process.stdout.readline())
    parents = {pid: about.ppid for pid in list_pids() if (about := read_stat(pid))}
    (child,) = [pid for pid, parent in parents.items() if parent == process.pid]
    return process, child, below


def test_what_is_below_a_process(shell: tuple[subprocess.Popen[str], int, int]) -> None:
    process, child, below = shell
    assert sorted(descendants([process.pid])) == sorted([child, below])
    assert family([process.pid]) == {child: process.pid, below: process.pid}
    # Each belongs to the nearest root above it.
    assert family([process.pid, child]) == {below: child}
    assert descendants([1 << 30]) == []
    assert family([1 << 30]) == {}


def test_what_is_below_another_process_is_never_we_or_what_we_started(
    shell: tuple[subprocess.Popen[str], int, int],
) -> None:
    """A rank that is the first process of a container adopts its own monitor."""
    process, child, below = shell
    ours = {os.getpid(), process.pid, child, below}
    assert not ours & {*family([os.getppid()]), *descendants([os.getppid()])}
    assert ours - {os.getpid()} <= set(family([os.getpid()]))


def test_a_child_whose_parent_has_ended_is_found_by_its_mark(start: Start) -> None:
    program = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); print(os.getpid(), flush=True); time.sleep(3600)\n"
    )
    process = start(
        *(sys.executable, "-I", "-S", "-c", program), env={**os.environ, "MARK_OF_OURS": "a=b"}
    )
    assert process.stdout is not None
    orphan = int(process.stdout.readline())
    process.wait(DEADLINE)
    assert descendants([process.pid]) == []
    assert marked("MARK_OF_OURS", "a=b", DEADLINE) == {orphan}
    assert marked("MARK_OF_OURS", "a", DEADLINE) == set()


def test_words_and_variables_of_a_process(start: Start) -> None:
    variables = {"PATH": os.environ["PATH"], "A": "b=c", "LD_PRELOAD": ""}
    process = start(
        *(sys.executable, "-I", "-S", "-c", "input()", "", "é"),
        stdin=subprocess.PIPE,
        env=variables,
    )
    wait_until(lambda: words_of(process.pid), lambda words: words[-1:] == ("é",))
    assert words_of(process.pid) == (sys.executable, "-I", "-S", "-c", "input()", "", "é")
    assert (variables_of(process.pid) or {})["A"] == "b=c"
    assert runs_python(process.pid)
    assert uid_of(process.pid) == os.getuid()
    assert read_preloaded(process.pid) == read_preloaded(os.getpid())


def test_a_process_that_was_told_to_load_something_first(start: Start) -> None:
    """The loader complains of what is not there, and goes on (ld.so(8))."""
    process = start(
        *(sys.executable, "-I", "-S", "-c", "input()"),
        stdin=subprocess.PIPE,
        env={**os.environ, "LD_PRELOAD": "/no/hook.so"},
    )
    found = wait_until(lambda: read_preloaded(process.pid), lambda paths: "/no/hook.so" in paths)
    assert found[0] == "/no/hook.so"


def test_of_a_process_that_is_gone_nothing_is_known() -> None:
    assert words_of(1 << 30) == ()
    assert variables_of(1 << 30) is None
    assert uid_of(1 << 30) is None
    assert exit_code(1 << 30) is None
    assert sample(1 << 30) is None
    assert find_polling_threads(1 << 30) == ()
    assert started(1 << 30) is None
    assert not runs_python(1 << 30)
    assert runs_python(1 << 30, ["/usr/bin/python3", "train.py"])  # as another user's process
    assert not runs_python(1 << 30, ["/usr/bin/sleep", "python"])


def test_a_program_that_is_no_python_is_told(start: Start) -> None:
    process = start("sleep", "3600")
    wait_until(lambda: words_of(process.pid), lambda words: words[:1] == ("sleep",))
    assert not runs_python(process.pid, ["python"])


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("raise SystemExit(3)", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("pass", 0),
    ],
)
def test_a_zombie_tells_how_it_ended(program: str, status: int) -> None:
    """Field 52 of /proc/PID/stat (proc_pid_stat(5)), as waitpid() would give it."""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", program]) as process:
        found = wait_until(lambda: exit_code(process.pid), lambda code: code is not None)
        assert found == status
        assert sample(process.pid) is None  # a zombie counts nothing any more
        assert process.wait(DEADLINE) == status
    assert exit_code(os.getpid()) is None  # it runs


def test_a_sample_counts_what_the_process_did_since_the_last_one(tmp_path: Path) -> None:
    before = sample(os.getpid())
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    (tmp_path / "file").read_bytes()
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    after = sample(os.getpid())
    assert before is not None
    assert after is not None
    assert after.written - before.written >= 1 << 20
    assert after.read - before.read >= 1 << 20
    assert after.main_written - before.main_written >= 1 << 20
    assert after.cpu - before.cpu >= 0.1  # it counts ticks of a hundredth, and misses some
    assert (after.started, after.pid, after.received) == (before.started, os.getpid(), None)


def test_a_sample_counts_what_came_in_over_tcp() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        client = stack.enter_context(socket.create_connection(server.getsockname()))
        accepted = stack.enter_context(server.accept()[0])
        before = sample(os.getpid(), net=True)
        client.sendall(bytes(5000))
        after = wait_until(lambda: sample(os.getpid(), net=read_sockets()), is_sample)
        assert before is not None
        assert before.received is not None
        assert after is not None
        assert after.received == before.received + 5000
        accepted.recv(5000)


def is_sample(found: object) -> bool:
    return found is not None


def test_the_time_of_threads_that_only_poll_is_told_apart() -> None:
    """By the name that tensorpipe gives its threads (tensorpipe/transport/shm/reactor.cc)."""
    go_on = threading.Event()

    def spin() -> None:
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass
        go_on.wait(DEADLINE)

    with thread_in("futex", spin, go_on.set) as thread:
        Path(f"/proc/self/task/{thread.tid}/comm").write_text("TP_SHM_reactor")
        polling = find_polling_threads(os.getpid())
        found = sample(os.getpid(), polling=polling)
    assert polling == (thread.tid,)
    assert found is not None
    ((tid, seconds),) = found.polling
    assert tid == thread.tid
    assert 0.03 <= seconds <= found.cpu


# ---- memory --------------------------------------------------------------------------------------


def test_the_memory_of_a_process_is_read_as_it_is() -> None:
    text = ctypes.create_string_buffer("né".encode() + b"\0rest")
    seconds = (ctypes.c_long * 2)(5, 250_000_000)
    with ProcessMemory(os.getpid()) as memory:
        assert not memory.refused
        assert memory.read(ctypes.addressof(text), 4) == "né".encode() + b"\0"
        assert memory.string(ctypes.addressof(text)) == "né"
        assert memory.timespec(ctypes.addressof(seconds)) == 5.25
        assert memory.timespec(ctypes.addressof(seconds), 1e-6) == 255.0  # microseconds
        # What the kernel would not take (nanosleep(2), EINVAL), or an address: the call was over.
        for words in ((5, 1_000_000_000), (5, -1), (-1, 0), (0x7F3D_0000_5678, 0)):
            assert memory.timespec(ctypes.addressof((ctypes.c_long * 2)(*words))) is None, words
        for_ever = (ctypes.c_long * 2)(2**63 - 1, 0)
        assert memory.timespec(ctypes.addressof(for_ever)) == pytest.approx(2.0**63)
        assert memory.read(0, 8) is None  # NULL: "no time limit"
        assert memory.timespec(0) is None
        assert memory.read(1 << 63, 8) is None
    with ProcessMemory(1 << 30) as memory:
        assert memory.read(ctypes.addressof(text), 4) is None


def test_a_text_may_end_just_before_a_page_that_is_not_there() -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    LIBC.mmap.restype = ctypes.c_void_p
    LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    rights, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    place = LIBC.mmap(None, 2 * page, rights, kind, -1, 0)
    ctypes.memmove(place + page - 4, b"abc\0", 4)
    ctypes.memmove(place + page - 8, b"ab", 2)
    long = b"x" * 3000 + b"\0"
    ctypes.memmove(place + 500, long, len(long))
    LIBC.munmap(place + page, page)
    with ProcessMemory(os.getpid()) as memory:
        assert memory.string(place + page - 4) == "abc"
        assert memory.string(place + 500) == "x" * 3000
        assert memory.string(place + 500, most=2000) is None  # it does not end there
        assert memory.read(place + page - 4, 100) == b"abc\0"
        ctypes.memmove(place + page - 4, b"abcd", 4)
        assert memory.string(place + page - 4) is None
    LIBC.munmap(place, page)


def test_what_this_process_may_trace_is_what_the_kernel_lets_it() -> None:
    """capability(7): CAP_SYS_PTRACE has the number 19; /proc/PID/status has the set in hex."""
    found = read_trace_permission()
    if shutil.which("capsh"):
        has = subprocess.run(["capsh", "--has-p=cap_sys_ptrace"], capture_output=True)
        assert found.capable is (has.returncode == 0)
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    assert found.yama == (int(scope.read_text()) if scope.exists() else None)
    filtered = LIBC.prctl(21, 0, 0, 0, 0)  # PR_GET_SECCOMP (prctl(2))
    assert found.filtered is (filtered == 2)
