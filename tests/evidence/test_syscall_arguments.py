"""What the arguments of a system call mean; which bytes look like a mutex that somebody has."""

from __future__ import annotations

import os
import struct
import threading

import pytest
from hangbisect.base.process_facts import Descriptor, Futex, Syscall
from hangbisect.evidence import kernel, syscall_arguments
from hypothesis import given
from hypothesis import strategies as st

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
    assert syscall_arguments.parse_shared_file(MAPS, address) == file


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
