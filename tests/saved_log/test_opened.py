"""What was saved, however it was packed."""

from __future__ import annotations

import gzip

import pytest
from hangbisect.saved_log import decode_log, unpack_log
from hypothesis import given
from hypothesis import strategies as st


def test_what_gzip_packed_is_unpacked_parts_one_after_another_as_well() -> None:
    assert unpack_log(gzip.compress(b"one ") + gzip.compress(b"two"), 100) == b"one two"


def test_of_a_packed_file_that_is_cut_off_there_is_what_stands_before() -> None:
    text = bytes(range(256)) * 20_000
    packed = gzip.compress(text)
    found = unpack_log(packed[: len(packed) // 2], len(text))
    assert found
    assert text.startswith(found)


def test_no_more_is_unpacked_than_is_asked_for() -> None:
    """A small file may hold gigabytes."""
    assert len(unpack_log(gzip.compress(b"x" * 100_000), 1000)) == 1001


@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_text_is_what_it_was(coding: str) -> None:
    assert decode_log("rank 1: é".encode(coding)) == "rank 1: é"


@given(st.binary())
def test_any_bytes_are_taken(data: bytes) -> None:
    decode_log(unpack_log(data, 1000))
    unpack_log(b"\x1f\x8b" + data, 1000)
