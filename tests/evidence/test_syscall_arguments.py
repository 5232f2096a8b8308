"""What the arguments of a system call mean; which bytes look like a mutex that somebody has."""

from __future__ import annotations

import ctypes
import fcntl
import multiprocessing
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from hangbisect.base.process_facts import Descriptor, Futex, Kernel, Syscall, Thread
from hangbisect.evidence import kernel, syscall_arguments
from hangbisect.evidence.process import descendants
from hypothesis import given
from hypothesis import strategies as st

from ..conftest import Start
from .own_threads import LIBC, decode, thread_in

ME = threading.get_native_id()


class Bytes:
    """Memory that holds the same bytes everywhere."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, address: int, size: int) -> bytes | None:
        return self.data[:size] or None


def mutex(word: int = 2, count: int = 0, owner: int = 4711, users: int = 1, kind: int = 0) -> bytes:
    return struct.pack("=IIIII", word, count, owner, users, kind)


def waiting(operation: int = syscall_arguments.FUTEX_WAIT | 128) -> Syscall:
    return Syscall(202, "futex", (0x1000, operation, 2, 0, 0, 0))


@pytest.mark.parametrize(
    "data",
    [
        mutex(),
        mutex(word=1),
        mutex(count=3, kind=1),  # recursive
        mutex(word=0x80000000 | 4711, kind=0x10),  # robust: the word is the owner
        mutex(users=3),  # waited for by conditions, too
    ],
)
def test_a_locked_mutex_has_an_owner(data: bytes) -> None:
    assert syscall_arguments.find_mutex_owner(data) == 4711


@pytest.mark.parametrize(
    "data",
    [
        mutex(word=0),  # a semaphore of Python, or free
        mutex(word=77),  # a counter
        mutex(owner=0),
        mutex(owner=1 << 30),
        mutex(users=0),
        mutex(users=0x7F56),  # half of a pointer
        mutex(kind=0xFFFF),
        mutex()[:12],
        b"",
    ],
)
def test_other_words_have_none(data: bytes) -> None:
    assert syscall_arguments.find_mutex_owner(data) is None


def test_with_priority_inheritance_the_word_is_the_owner() -> None:
    assert (
        syscall_arguments.find_mutex_owner(
            struct.pack("=I", 0x80000000 | 4711), syscall_arguments.FUTEX_LOCK_PI
        )
        == 4711
    )


def test_an_owner_that_lives_here_exists_and_another_does_not() -> None:
    found = syscall_arguments.decode_futex(waiting(), Bytes(mutex(owner=ME)), os.getpid())
    assert found == Futex(0x1000, 2, ME, True)
    found = syscall_arguments.decode_futex(waiting(), Bytes(mutex(owner=1 << 22)), os.getpid())
    assert found == Futex(0x1000, 2, 1 << 22, False)


def test_of_a_lock_that_processes_share_nothing_is_said_about_its_owner() -> None:
    found = syscall_arguments.decode_futex(
        waiting(syscall_arguments.FUTEX_WAIT), Bytes(mutex()), os.getpid()
    )
    assert found == Futex(0x1000, 2, 4711, None)


def test_of_a_process_that_is_gone_nobody_knows_whether_a_thread_exists() -> None:
    assert syscall_arguments.thread_exists(1 << 30, 5) is None


def test_waking_is_no_waiting_and_other_calls_have_no_futex() -> None:
    assert syscall_arguments.decode_futex(waiting(1), Bytes(mutex()), 1) is None
    assert syscall_arguments.decode_futex(Syscall(0, "read", (1,) * 6), Bytes(mutex()), 1) is None


def test_without_its_memory_only_the_address_is_known() -> None:
    assert syscall_arguments.decode_futex(waiting(), Bytes(b""), 1) == Futex(0x1000)


@given(st.binary(max_size=30), st.integers(0, 2**64 - 1))
def test_any_memory_is_taken(data: bytes, operation: int) -> None:
    syscall_arguments.decode_futex(waiting(operation), Bytes(data), 1 << 30)


MAPS = """\
7f10a000-7f10b000 rw-s 00000000 00:1a 4711                     /dev/shm/sem.mp-t9x0a1 (deleted)
7f10b000-7f10c000 rw-p 00000000 00:00 0
7f10c000-7f10d000 r--p 00000000 08:01 42                       /usr/lib/libc.so.6
"""


@pytest.mark.parametrize(
    ("address", "file"),
    [
        (0x7F10A000, "/dev/shm/sem.mp-t9x0a1 (deleted)"),
        (0x7F10AFFF, "/dev/shm/sem.mp-t9x0a1 (deleted)"),
        (0x7F10B000, ""),
        (0x7F10C000, ""),
        (0x1000, ""),
    ],
)
def test_the_file_in_shared_memory_that_a_word_is_in(address: int, file: str) -> None:
    assert syscall_arguments.find_shared_file(MAPS, address)[-1:] == ([file] if file else [])


def test_a_semaphore_of_processes_is_told_by_its_file() -> None:
    assert Futex(1, file="/dev/shm/sem.mp-t9x0a1 (deleted)").is_shared_semaphore
    assert not Futex(1, file="/dev/shm/torch_81_1").is_shared_semaphore
    assert not Futex(1).is_shared_semaphore


def test_what_an_epoll_waits_for() -> None:
    text = "pos:\t0\nflags:\t02\ntfd:        5 events:       19 data:  5\ntfd:  x events: 1\ntfd:\n"
    assert syscall_arguments.parse_epoll_set(text) == [5]


class NoMemory:
    """Memory that holds nothing, or garbage."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, address: int, size: int) -> bytes | None:
        return self.data[:size] or None

    def string(self, address: int) -> str | None:
        return None

    def timespec(self, address: int, fraction: float = 1e-9) -> float | None:
        return None


@given(
    st.sampled_from(sorted(kernel._X86_64.values())),
    st.tuples(*[st.integers(0, 2**64 - 1)] * 6),
    st.binary(max_size=600),
)
def test_arguments_of_any_call_never_raise(name: str, args: tuple[int, ...], data: bytes) -> None:
    call = syscall_arguments.decode_syscall(
        Syscall(0, name, args), NoMemory(data), lambda fd: Descriptor(fd, "unknown", ""), 2**31
    )
    assert call.name == name


def test_the_descriptors_of_poll_and_the_path_of_a_unix_connect() -> None:
    poll = b"\x05\0\0\0\x01\0\0\0" + b"\xff\xff\xff\xff\x01\0\0\0"
    call = Syscall(7, "poll", (1, 2, 0xFFFFFFFF, 0, 0, 0))
    found = syscall_arguments.decode_syscall(
        call, NoMemory(poll), lambda fd: Descriptor(fd, "file", ""), 1
    )
    assert [one.fd for one in found.descriptors] == [5]
    assert found.timeout is None
    call = Syscall(42, "connect", (3, 1, 110, 0, 0, 0))
    found = syscall_arguments.decode_syscall(
        call, NoMemory(b"\x01\0/run/s\0..."), lambda fd: Descriptor(fd, "socket", ""), 1
    )
    assert found.path == "/run/s"


@given(st.text())
def test_any_text_of_an_epoll_descriptor_is_taken(text: str) -> None:
    syscall_arguments.parse_epoll_set(text)


# ---- real calls, of threads of this process ------------------------------------------------------


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe in which nothing is."""
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


class Timespec(ctypes.Structure):
    """The `struct timespec` of <time.h> (timespec(3type))."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class PollFd(ctypes.Structure):
    """The `struct pollfd` of poll(2)."""

    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


@pytest.mark.parametrize(("limit", "seconds"), [(90_000, 90.0), (None, None)])
def test_a_poll_has_its_descriptors_and_its_limit(
    pipe: tuple[int, int], limit: int | None, seconds: float | None
) -> None:
    poll = select.poll()
    poll.register(pipe[0], select.POLLIN)
    with thread_in("poll", lambda: poll.poll(limit), lambda: os.write(pipe[1], b"x")) as thread:
        call = decode(thread)
    assert [(one.fd, one.kind) for one in call.descriptors] == [(pipe[0], "pipe")]
    assert call.timeout == seconds


def test_a_ppoll_counts_its_limit_in_nanoseconds(pipe: tuple[int, int]) -> None:
    waited, limit = PollFd(pipe[0], select.POLLIN, 0), Timespec(90, 500_000_000)

    def call() -> None:
        LIBC.ppoll(ctypes.byref(waited), 1, ctypes.byref(limit), None)

    with thread_in("ppoll", call, lambda: os.write(pipe[1], b"x")) as thread:
        found = decode(thread)
    assert [one.fd for one in found.descriptors] == [pipe[0]]
    assert found.timeout == pytest.approx(90.5)


def test_a_select_has_what_is_in_its_sets(pipe: tuple[int, int]) -> None:
    """Those to read and those of which only the exceptions are waited for; fds above 8 as well."""
    high = fcntl.fcntl(pipe[0], fcntl.F_DUPFD, 70)
    try:
        with thread_in(
            "pselect6",
            lambda: select.select([high], [], [pipe[0]], 90),
            lambda: os.write(pipe[1], b"x"),
        ) as thread:
            call = decode(thread)
    finally:
        os.close(high)
    assert {one.fd for one in call.descriptors} == {high, pipe[0]}
    assert call.timeout == pytest.approx(90.0)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="aarch64 has no select(2) of its own")
def test_the_limit_of_the_old_select_is_in_microseconds(pipe: tuple[int, int]) -> None:
    reads = (ctypes.c_uint64 * 16)()
    reads[pipe[0] // 64] = 1 << pipe[0] % 64
    limit = Timespec(90, 250_000)  # a timeval: microseconds

    def call() -> None:
        LIBC.syscall(23, pipe[0] + 1, reads, None, None, ctypes.byref(limit))

    with thread_in("select", call, lambda: os.write(pipe[1], b"x")) as thread:
        found = decode(thread)
    assert [one.fd for one in found.descriptors] == [pipe[0]]
    assert found.timeout == pytest.approx(90.25)


def test_an_epoll_waits_for_itself_and_for_what_was_added_to_it(pipe: tuple[int, int]) -> None:
    with select.epoll() as poll:
        poll.register(pipe[0], select.EPOLLIN)
        with thread_in(
            "epoll_wait", lambda: poll.poll(90), lambda: os.write(pipe[1], b"x")
        ) as thread:
            call = decode(thread)
        assert [one.fd for one in call.descriptors] == [poll.fileno(), pipe[0]]
    assert call.timeout == 90.0
    assert syscall_arguments.read_epoll_set(os.getpid(), 1 << 20) == []


@pytest.mark.parametrize("abstract", [False, True])
def test_a_connect_to_a_full_unix_socket_has_its_path(tmp_path: Path, abstract: bool) -> None:
    """unix(7): it blocks until the listener has taken one of those that wait."""
    name = f"hangbisect-{os.getpid()}-full" if abstract else str(tmp_path / "full.sock")
    address = "\0" + name if abstract else name
    with ExitStack() as stack:
        server, first, second = (
            stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(3)
        )
        server.bind(address)
        server.listen(0)
        first.connect(address)
        with thread_in(
            "connect", lambda: second.connect(address), lambda: server.accept()[0].close()
        ) as thread:
            call = decode(thread)
    assert call.path == ("@" + name if abstract else name)
    assert [one.kind for one in call.descriptors] == ["socket"]


def test_a_connect_over_tcp_has_no_path() -> None:
    address = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", 80, bytes([192, 0, 2, 1]))
    call = Syscall(42, "connect", (3, 0x1000, len(address), 0, 0, 0))
    found = syscall_arguments.decode_syscall(
        call, NoMemory(address), lambda fd: Descriptor(fd, "socket", ""), 1
    )
    assert found.path is None


def test_an_open_of_a_fifo_has_its_path(tmp_path: Path) -> None:
    """fifo(7): it blocks until the other end is opened, too."""
    path = tmp_path / "a fifo"
    os.mkfifo(path)
    with thread_in(
        "openat",
        lambda: os.close(os.open(path, os.O_RDONLY)),
        lambda: os.close(os.open(path, os.O_WRONLY)),
    ) as thread:
        assert decode(thread).path == str(path)


@pytest.mark.parametrize("limit", [90, -1])
def test_of_a_wait_for_a_lock_of_python_what_is_left_of_its_limit_is_known(limit: float) -> None:
    lock = threading.Lock()
    lock.acquire()
    with thread_in("futex", lambda: lock.acquire(timeout=limit), lock.release) as thread:
        call = decode(thread)
    assert call.futex is not None
    assert call.futex.owner is None  # nothing tells who has such a lock
    if limit < 0:
        assert call.timeout is None
    else:
        assert call.timeout is not None
        assert 0 < call.timeout <= limit


PRIO_INHERIT, ROBUST = 1, 1  # <pthread.h>


@pytest.mark.parametrize("kind", ["plain", "prio_inherit", "robust"])
def test_a_mutex_of_the_c_library_tells_who_has_it(kind: str) -> None:
    """What glibc itself writes into a mutex that this thread has locked."""
    mutex_memory, attributes = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
    assert LIBC.pthread_mutexattr_init(attributes) == 0
    if kind == "prio_inherit":
        assert LIBC.pthread_mutexattr_setprotocol(attributes, PRIO_INHERIT) == 0
    elif kind == "robust":
        assert LIBC.pthread_mutexattr_setrobust(attributes, ROBUST) == 0
    assert LIBC.pthread_mutex_init(mutex_memory, attributes) == 0
    LIBC.pthread_mutex_lock(mutex_memory)

    def take() -> None:
        LIBC.pthread_mutex_lock(mutex_memory)
        LIBC.pthread_mutex_unlock(mutex_memory)

    with thread_in("futex", take, lambda: LIBC.pthread_mutex_unlock(mutex_memory)) as thread:
        call = decode(thread)
    assert call.futex is not None
    # A robust one waits as if processes shared it (glibc, nptl/pthread_mutex_lock.c: "This mutex
    # is always shared"): whether its owner is a thread of this process is not told.
    exists = None if kind == "robust" else True
    assert (call.futex.owner, call.futex.owner_exists) == (threading.get_native_id(), exists)
    assert ctypes.addressof(mutex_memory) <= call.futex.address < ctypes.addressof(mutex_memory) + 8
    assert call.timeout is None


def test_a_lock_of_multiprocessing_is_a_semaphore_that_processes_share() -> None:
    lock = multiprocessing.get_context("fork").Lock()
    lock.acquire()
    with thread_in("futex", lock.acquire, lock.release) as thread:
        call = decode(thread)
    assert call.futex is not None
    assert call.futex.is_shared_semaphore


@pytest.mark.parametrize(
    ("clock", "flags", "ahead", "left"),
    [
        (time.CLOCK_MONOTONIC, 0, False, 90.0),  # counted from the call
        (time.CLOCK_MONOTONIC, 1, True, 90.0),  # TIMER_ABSTIME
        (time.CLOCK_REALTIME, 1, True, 90.0),
        (time.CLOCK_MONOTONIC, 1, False, 0.0),  # 90 s after boot: over for long
        (time.CLOCK_BOOTTIME, 1, True, None),  # counts on while the machine sleeps: not asked
    ],
)
def test_what_is_left_of_a_sleep(clock: int, flags: int, ahead: bool, left: float | None) -> None:
    until = Timespec(90 + (int(time.clock_gettime(clock)) if ahead else 0), 0)
    call = Syscall(230, "clock_nanosleep", (clock, flags, ctypes.addressof(until), 0, 0, 0))
    found = decode(Kernel(1, "python", "S", "", call)).timeout
    if left is None:
        assert found is None
    else:
        assert found == pytest.approx(left, abs=30)


@pytest.mark.parametrize(
    ("operation", "clock"),
    [
        (syscall_arguments.FUTEX_WAIT_BITSET, time.CLOCK_MONOTONIC),
        (syscall_arguments.FUTEX_WAIT_BITSET | 256, time.CLOCK_REALTIME),
        (syscall_arguments.FUTEX_LOCK_PI, time.CLOCK_REALTIME),
        (syscall_arguments.FUTEX_LOCK_PI2, time.CLOCK_MONOTONIC),
    ],
)
def test_each_operation_of_a_futex_has_its_clock(operation: int, clock: int) -> None:
    """futex(2), "Timeouts": only FUTEX_WAIT counts from the call."""
    until = Timespec(int(time.clock_gettime(clock)) + 90, 0)
    word = ctypes.c_uint32(2)
    where = (ctypes.addressof(word), operation | 128, 2, ctypes.addressof(until), 0, 0)
    call = Syscall(202, "futex", where)
    assert decode(Kernel(1, "python", "S", "", call)).timeout == pytest.approx(90, abs=30)
    until.seconds = 90
    relative = (where[0], syscall_arguments.FUTEX_WAIT | 128, *where[2:])
    counted = replace(call, args=relative)
    assert decode(Kernel(1, "python", "S", "", counted)).timeout == pytest.approx(90)
    wakes = replace(call, args=(where[0], 1 | 128, *where[2:]))
    assert decode(Kernel(1, "python", "S", "", wakes)).timeout is None


# ---- threads in a pid namespace ------------------------------------------------------------------


@pytest.fixture
def contained(start: Callable[..., subprocess.Popen[str]]) -> int:
    """A process that is number 1 of a pid namespace of its own; its pid here."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("there is no unshare here")
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    program = "import os; print(os.getpid(), flush=True); input()"
    outer = start(
        *(unshare, *rights, "--pid", "--fork", sys.executable, "-I", "-S", "-c", program),
        stdin=subprocess.PIPE,
    )
    assert outer.stdout is not None
    if outer.stdout.readline().strip() != "1":
        pytest.skip("no pid namespace can be made here")
    (inner,) = descendants([outer.pid])
    return inner


def test_threads_of_a_container_get_the_ids_that_they_have_here(contained: int) -> None:
    """py-spy and pystack print the id that a thread has inside."""
    assert syscall_arguments.read_outer_ids(contained) == {1: contained}
    helper, main = Thread(77, "gone", False, False, ()), Thread(1, None, False, False, ())
    found = syscall_arguments.renumber_threads(contained, (helper, main))
    assert [one.os_id for one in found] == [contained, 77]  # the main one comes first
    # Which of its threads has an id that stands in its memory, nobody can tell from here.
    assert syscall_arguments.thread_exists(contained, 77) is None


def test_threads_outside_of_a_container_keep_their_ids() -> None:
    assert syscall_arguments.read_outer_ids(os.getpid()) == {}
    assert syscall_arguments.read_outer_ids(1 << 30) == {}
    threads = (Thread(5, None, False, False, ()), Thread(os.getpid(), None, False, False, ()))
    assert syscall_arguments.renumber_threads(os.getpid(), threads) == threads


def test_a_sigwait_has_the_signals_that_it_waits_for() -> None:
    call = Syscall(128, "rt_sigtimedwait", (0x1000, 0, 0, 8, 0, 0))
    asked = struct.pack("=Q", 1 << signal.SIGUSR2 - 1 | 1 << 64 - 1)

    class Words(Bytes):
        def string(self, address: int) -> str | None:
            return None

        def timespec(self, address: int, fraction: float = 1e-9) -> float | None:
            return None

    found = syscall_arguments.decode_syscall(
        call, Words(asked), lambda fd: Descriptor(fd, "anon", ""), os.getpid()
    )
    assert found.signals == (signal.SIGUSR2, 64)
    assert found.timeout is None


def test_who_else_has_the_semaphore_mapped() -> None:
    """A forked child has it; one that was started anew has not."""
    made = multiprocessing.get_context("fork").Event()
    maps = Path("/proc/self/maps").read_text().splitlines()
    mapping = next(line.split() for line in maps if "/dev/shm/sem." in line)
    child = multiprocessing.get_context("fork").Process(target=made.wait, args=(60.0,))
    child.start()
    other = subprocess.Popen(["sleep", "60"])
    try:
        found = syscall_arguments.list_sharers(os.getpid(), mapping)
        assert found is not None
        assert child.pid in found
        assert not {os.getpid(), other.pid} & {*found}
    finally:
        other.kill()
        other.wait()
        made.set()
        child.join()


@pytest.mark.parametrize("kind", ["session of this machine", "session from outside a container"])
def test_sharers_are_found_whoever_began_their_session(start: Start, kind: str) -> None:
    """In a container the session of what was started from outside of it is 0 (pid_namespaces(7)):
    that is a session too.
    """
    program = """
import multiprocessing, os
from hangbisect.evidence.syscall_arguments import list_sharers
made = multiprocessing.get_context("fork").Event()
with open("/proc/self/maps") as maps:
    mapping = next(line.split() for line in maps if "/dev/shm/sem." in line)
child = multiprocessing.get_context("fork").Process(target=made.wait, args=(60.0,))
child.start()
print(os.getsid(0), list_sharers(os.getpid(), mapping) == (child.pid,))
made.set()
child.join()
"""
    way: list[str] = []
    if kind == "session from outside a container":
        unshare = shutil.which("unshare")
        if unshare is None or os.geteuid() != 0:
            pytest.skip("no pid namespace can be made here")
        way = [unshare, "--pid", "--fork", "--mount-proc"]
    process = start(*way, sys.executable, "-c", program)
    said, complaint = process.communicate(timeout=60)
    if way and "unshare:" in complaint:
        pytest.skip("no pid namespace can be made here")
    session, found = said.split()
    assert (session == "0") is (bool(way) or os.getsid(0) == 0)
    assert found == "True"
