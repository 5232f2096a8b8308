"""How much a rank may write."""

from __future__ import annotations

from pathlib import Path

import pytest
from hangbisect.captures.capture_file import (
    INPUTS,
    KEPT_FREE,
    OUTPUTS,
    Amount,
    CaptureLimits,
    file_stem,
    measure_rank,
    rank_in_name,
    why_full,
)
from hypothesis import given
from hypothesis import strategies as st

ROOM = 10 * KEPT_FREE


@pytest.mark.parametrize(
    ("has", "size", "world_size", "free", "why"),
    [
        (Amount(9, 0), 1, 1, ROOM, ""),
        (Amount(10, 0), 1, 1, ROOM, "--max-captures"),
        (Amount(0, 999_999_999), 1, 1, ROOM, ""),
        (Amount(0, 999_999_999), 2, 1, ROOM, "--max-gb 1 allows 954 MiB for each rank"),
        (Amount(0, 500_000_000), 1, 2, ROOM, "--max-gb 1 allows 477 MiB for each rank"),
        (Amount(0, 0), 2, 1, KEPT_FREE + 1, "1 GiB is kept free"),
    ],
)
def test_limits(has: Amount, size: int, world_size: int, free: int, why: str) -> None:
    said = why_full(has, size, CaptureLimits(10, 1.0), world_size, free)
    assert why in said
    assert bool(said) == bool(why)


def test_what_earlier_jobs_left_counts_for_its_rank_alone(tmp_path: Path) -> None:
    for rank, ending in ((1, INPUTS), (1, OUTPUTS), (11, INPUTS), (1, ".txt")):
        (tmp_path / f"{file_stem('Net', rank, 1e9)}{ending}").write_bytes(b"12345")
    assert measure_rank(str(tmp_path), 1) == Amount(captures=1, bytes=10)


@given(st.text(), st.integers(0, 10**6), st.floats(0, 4e9))
def test_a_files_name_says_its_rank_whatever_the_module_is_called(
    name: str, rank: int, at: float
) -> None:
    made = file_stem(name, rank, at)
    assert rank_in_name(f"/captures-rank7-/{made}{INPUTS}") == rank
    assert made.isascii()
    assert "/" not in made
