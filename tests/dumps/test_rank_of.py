"""Ranks from the names of files."""

from __future__ import annotations

import pytest
from hangbisect.base.files import by_names, named
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("file", "rank"),
    [
        ("rank-3.txt", 3),
        ("/tmp/nccl_trace_rank_12", 12),
        ("stacks/rank0.log", 0),
        ("dump.r7.txt", 7),
        ("global_rank4.out", 4),
        ("logs/rank_2/stderr.log", 2),
        ("local_rank_2/stderr.log", 2),
        ("error3.txt", None),
        ("pid-4711.txt", None),
        ("rank0-to-rank1.txt", None),
        ("crank3.txt", None),
    ],
)
def test_a_name_that_tells(file: str, rank: int | None) -> None:
    if file.startswith("local_rank"):
        assert named(file) is None  # it counts on one node alone
    else:
        assert named(file) == rank


def test_names_that_tell_only_together() -> None:
    assert by_names(["spy.0.txt", "spy.1.txt"]) == {"spy.0.txt": 0, "spy.1.txt": 1}
    assert by_names(["a/0/stderr.log", "a/1/stderr.log"]) == {
        "a/0/stderr.log": 0,
        "a/1/stderr.log": 1,
    }


@pytest.mark.parametrize(
    "files",
    [
        ["4711.txt", "4712.txt"],
        ["spy.0.txt"],
        ["spy.0.txt", "spy.2.txt"],
        ["n0/0.txt", "n0/1.txt", "n1/0.txt", "n1/1.txt"],
    ],
)
def test_numbers_that_may_be_anything_tell_nothing(files: list[str]) -> None:
    assert by_names(files) == {}


@given(st.lists(st.text(max_size=20), max_size=5))
def test_any_names_are_taken(files: list[str]) -> None:
    assert set(by_names(files)) <= set(files)
