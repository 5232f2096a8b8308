"""The rings of ranks, read from outside."""

from __future__ import annotations

import os

import pytest
from hangbisect.evidence.ring_reader import parse_ring, read_ring
from hangbisect.rank.collective_records import (
    BLOCKS,
    ENTERED,
    LEFT,
    RECORD,
    RECORDS,
    RING_HEADER,
    RING_SIZE,
    RecordRing,
    open_ring,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st


def write(
    ring: RecordRing, base: int, number: int, *, group: str = "0\n0-1\n", check: int = 0
) -> None:
    at = base + number % RECORDS * RECORD.size
    texts = [ring.text(text) for text in (group, "barrier", "a.py:1 f\n\n/a.py\n\n", "")]
    state = LEFT if number % 2 else ENTERED
    RECORD.pack_into(ring.memory, at, number, *texts, state, float(number), 0, check or number)


def test_what_was_written_is_read_by_another_descriptor() -> None:
    ring = RecordRing()
    base = ring.block()
    for number in (1, 2):
        write(ring, base, number)
    descriptor = open_ring(os.getpid(), ring.fd)
    os.close(ring.fd)
    ring.memory.close()  # the writer is gone
    log = read_ring(descriptor).log
    os.close(descriptor)
    assert log is not None
    assert [(o.kind, o.number, o.site, o.done) for o in log.operations] == [
        ("barrier", 1, "a.py:1 f", True),
        ("barrier", 2, "a.py:1 f", False),
    ]
    assert log.groups == {"0": (0, 1)}


def test_a_record_that_is_half_written_is_left_out() -> None:
    ring = RecordRing()
    base = ring.block()
    write(ring, base, 1)
    write(ring, base, 2, check=514)
    log = read_ring(ring.fd).log
    assert log is not None
    assert [o.number for o in log.operations] == [1]


def test_an_earlier_group_of_the_same_name_is_left_out() -> None:
    ring = RecordRing()
    for count in (3, 2):
        base = ring.block()
        for number in range(1, count + 1):
            at = base + number % RECORDS * RECORD.size
            texts = [ring.text("0\n0-1\n"), ring.text("barrier"), 0, 0]
            when = number + 10.0 * (count == 2)
            RECORD.pack_into(ring.memory, at, number, *texts, LEFT, when, 0, number)
    log = read_ring(ring.fd).log
    assert log is not None
    assert [(o.number, o.at) for o in log.operations] == [(1, 11.0), (2, 12.0)]


def test_groups_beyond_the_last_block_share_it() -> None:
    ring = RecordRing()
    for n in range(BLOCKS + 3):
        base = ring.block()
        write(ring, base, n + 1, group=f"{n}\n0\n")
    log = read_ring(ring.fd).log
    assert log is not None
    assert {o.group for o in log.operations} == {str(n) for n in range(BLOCKS + 3)}


def test_texts_that_find_no_room_are_empty() -> None:
    ring = RecordRing()
    ids = [ring.text(f"{n} " + "x" * 990) for n in range(1200)]
    assert ids[-1] == 0
    assert ids[0] != 0
    assert ring.text(f"{0} " + "x" * 990) == ids[0]


def test_a_descriptor_that_is_something_else_is_refused() -> None:
    with open(os.devnull) as file, pytest.raises(OSError, match="not the log of a rank"):
        open_ring(os.getpid(), file.fileno())


@settings(deadline=None)
@given(st.binary(max_size=200))
@example(b"")
@example(RING_HEADER.pack(b"HBRING\x001", 1, 2**32 - 1, 2**32 - 1, 2**32 - 1))
def test_garbage_is_no_log(data: bytes) -> None:
    assert parse_ring(data) is None or parse_ring(data) is not None  # it does not raise


@settings(deadline=None)
@given(st.data())
def test_a_ring_that_is_overwritten_with_garbage_does_not_raise(data: st.DataObject) -> None:
    ring = RecordRing()
    base = ring.block()
    for number in range(1, 6):
        write(ring, base, number)
    memory = bytearray(os.pread(ring.fd, RING_SIZE, 0))
    for _ in range(data.draw(st.integers(1, 20))):
        where = data.draw(st.sampled_from([st.integers(0, 400), st.integers(base, base + 300)]))
        memory[data.draw(where)] = data.draw(st.integers(0, 255))
    log = parse_ring(bytes(memory))
    assert log is None or all(isinstance(o.site, str) for o in log.operations)
    os.close(ring.fd)
    ring.memory.close()
