"""Whose code made a system call: the first return address on the stack that is not the C library's.

No mock: the memory is made up, byte by byte, as x86-64 lays it out.
"""

from __future__ import annotations

import struct

import pytest
from hangbisect.evidence.native_callers import CodeMap, find_caller, follows_a_call, parse_code_maps

MAPS = """\
400000-401000 r--p 00000000 08:01 11 /opt/conda/bin/python3.11
401000-500000 r-xp 00001000 08:01 11 /opt/conda/bin/python3.11
500000-600000 rw-p 00000000 00:00 0 [heap]
700000-701000 r-xp 00000000 00:00 0
7f0000000000-7f0000010000 r-xp 00001000 08:01 12 /usr/lib/x86_64-linux-gnu/libc.so.6
7f0000020000-7f0000030000 r-xp 00001000 08:01 13 /opt/my libs/libmpi.so.40
7f0000030000-7f0000040000 rw-p 00001000 08:01 13 /opt/my libs/libmpi.so.40
7f0000050000-7f0000060000 r-xp 00001000 08:01 14 /opt/lib/libhook.so (deleted)
7f0000070000-7f0000080000 r-xp 00001000 08:01 15 /usr/lib/libssl.so.3
7fff00000000-7fff00001000 r-xp 00000000 00:00 0 [vdso]
"""
STACK = 0x7FFE00000000
IN_LIBC, IN_MPI, IN_HOOK, IN_SSL, IN_PYTHON = (
    0x7F0000001000,
    0x7F0000021000,
    0x7F0000051000,
    0x7F0000071000,
    0x402000,
)


class Memory:
    """A stack of `words`, and code in which a call stands before each address but `without`."""

    def __init__(self, *words: int, without: tuple[int, ...] = ()) -> None:
        self.stack = b"".join(struct.pack("<Q", word) for word in words)
        self.without = without

    def read(self, address: int, size: int) -> bytes | None:
        if STACK <= address < STACK + len(self.stack):
            return self.stack[address - STACK :][:size]
        if address + size in self.without:
            return b"\x90" * size
        return (b"\x90" * 8 + b"\xe8\x10\x00\x00\x00")[-size:]


def caller(memory: Memory, passed_over: tuple[str, ...] = ()) -> str:
    return find_caller(parse_code_maps(MAPS), memory, STACK, passed_over)


def test_only_code_of_files_is_a_map_of_code() -> None:
    assert parse_code_maps(MAPS)[:2] == (
        CodeMap(0x401000, 0x500000, "/opt/conda/bin/python3.11"),
        CodeMap(0x7F0000000000, 0x7F0000010000, "/usr/lib/x86_64-linux-gnu/libc.so.6"),
    )
    assert [one.path for one in parse_code_maps(MAPS)][2:] == [
        "/opt/my libs/libmpi.so.40",
        "/opt/lib/libhook.so",
        "/usr/lib/libssl.so.3",
    ]


def test_the_c_library_calls_for_whoever_called_it() -> None:
    assert caller(Memory(3, IN_LIBC, 0x500010, IN_MPI, IN_PYTHON)) == "/opt/my libs/libmpi.so.40"
    assert caller(Memory(IN_LIBC, IN_PYTHON, IN_MPI)) == "/opt/conda/bin/python3.11"


def test_what_encrypts_and_what_is_preloaded_calls_for_whoever_called_it() -> None:
    stack = Memory(IN_LIBC, IN_HOOK, IN_SSL, IN_MPI)
    assert caller(stack, ("/opt/lib/libhook.so",)) == "/opt/my libs/libmpi.so.40"
    assert caller(stack) == "/opt/lib/libhook.so"


def test_an_address_that_no_call_stands_before_was_never_returned_to() -> None:
    """A pointer to a function, in a structure on the stack."""
    assert caller(Memory(IN_MPI, IN_PYTHON, without=(IN_MPI,))) == "/opt/conda/bin/python3.11"


@pytest.mark.parametrize("words", [(), (1, 2, 3), (IN_LIBC,), (0x7F0000030010, 0x700010)])
def test_a_stack_without_such_an_address_tells_nothing(words: tuple[int, ...]) -> None:
    assert caller(Memory(*words)) == ""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("e8 10 00 00 00", True),  # call rel32
        ("ff d0", True),  # call rax
        ("41 ff d4", True),  # call r12
        ("ff 15 10 20 30 00", True),  # call [rip+x]
        ("ff 54 24 08", True),  # call [rsp+8]
        ("ff 90 10 01 00 00", True),  # call [rax+x]
        ("ff e0", False),  # jmp rax
        ("e9 10 00 00 00", False),  # jmp rel32
        ("90 90 90 90 90 90 90", False),
        ("", False),
    ],
)
def test_which_code_is_a_call(code: str, expected: bool) -> None:
    data = bytes.fromhex(code)
    assert follows_a_call((b"\x90" * 7 + data)[-7:] if data else b"") is expected


@pytest.mark.parametrize("text", ["", "x", "zz-1 r-xp 0 0 0 /a", "1 r-xp 0 0 0 /a", "\0" * 90])
def test_garbage_is_no_map(text: str) -> None:
    assert parse_code_maps(text) == ()
