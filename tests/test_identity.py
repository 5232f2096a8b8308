"""Who a rank and a process are: told apart, sorted and named, also where no number is known."""

from __future__ import annotations

import json

import pytest
from hangbisect.base.identity import (
    ProcessId,
    RankId,
    UnknownRank,
    name_rank,
    parse_rank,
    rank_file,
    read_rank,
    write_rank,
)
from hangbisect.base.words import format_ranges, format_rank_numbers, format_ranks
from hypothesis import given
from hypothesis import strategies as st

HOSTS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=20)
UNKNOWN = st.builds(UnknownRank, HOSTS, st.integers(1, 4_194_304))
RANKS: st.SearchStrategy[RankId] = st.integers(0, 9999) | UNKNOWN
DUMPED = st.builds(UnknownRank, HOSTS, st.none() | st.integers(1, 99), st.integers(1, 99))


@given(st.lists(RANKS | DUMPED, unique=True))
def test_ranks_without_a_number_sort_behind_all_others(ranks: list[RankId]) -> None:
    ordered = sorted(ranks)
    numbers = [rank for rank in ordered if isinstance(rank, int)]
    assert ordered[: len(numbers)] == sorted(numbers)
    assert sorted(set(ranks)) == ordered
    if numbers:
        assert min(ranks) == numbers[0]


@given(RANKS)
def test_a_rank_is_read_back_from_json_and_from_what_it_is_called(rank: RankId) -> None:
    assert read_rank(json.loads(json.dumps(write_rank(rank)))) == rank
    assert parse_rank(name_rank(rank).removeprefix("rank ")) == rank
    assert parse_rank(str(write_rank(rank))) == rank


@given(st.lists(RANKS | DUMPED, unique=True))
def test_no_two_ranks_have_one_name(ranks: list[RankId]) -> None:
    looked_at = [r for r in ranks if isinstance(r, int) or not r.place]
    assert len({name_rank(rank) for rank in looked_at}) == len(looked_at)


@pytest.mark.parametrize(
    "value", ["3", "?", "? (pid x)", True, None, 2.0, [], 1 << 24, "? (pid 7) ", "?(4711)"]
)
def test_what_is_no_rank_is_none(value: object) -> None:
    assert read_rank(value) is None


def test_a_rank_is_called_as_its_readers_know_it() -> None:
    unknown, dumped = UnknownRank("n2", 712), UnknownRank("", 4711, 1)
    nameless = UnknownRank("", None, 2)
    assert [str(rank) for rank in (unknown, dumped, nameless)] == ["?", "?(4711)", "?(2)"]
    assert name_rank(3) == "rank 3"
    assert name_rank(unknown) == "rank ? (pid 712 on n2)"
    assert name_rank(UnknownRank("", 712)) == "rank ? (pid 712)"
    assert name_rank(dumped) == "rank ?(4711)"
    assert write_rank(dumped) is None
    assert str(ProcessId("n2", 712)) == "712 on n2"
    assert [rank_file(rank) for rank in (3, unknown)] == ["rank-3", "rank-pid712+n2"]


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([0, 1, UnknownRank("a", 7)], "ranks 0-1,?"),
        ([UnknownRank("a", 7), UnknownRank("b", 7)], "ranks ?"),
        ([UnknownRank("a", 7)], "rank ?"),
        ([UnknownRank("", 8, 1), 3, UnknownRank("", None, 2)], "ranks 3,?(8),?(2)"),
        ([], ""),
    ],
)
def test_ranks_are_listed_with_those_without_a_number_last(ranks: list[RankId], said: str) -> None:
    assert format_ranks(ranks) == said


@given(st.sets(RANKS, min_size=1), st.integers(1, 9))
def test_no_rank_is_lost_where_only_some_are_listed(ranks: set[RankId], most: int) -> None:
    text = format_rank_numbers(ranks, most)
    whole = format_ranges(ranks)
    if len(whole.split(",")) > most and " step " not in text:
        shown, _, left = text.partition(",... and ")
        assert whole.startswith(shown)
        unknown = sum(isinstance(rank, UnknownRank) for rank in ranks)
        ends = [run.partition("-") for run in shown.split(",") if run != "?"]
        count = sum(int(last or first) - int(first) + 1 for first, _, last in ends)
        assert count + int(left.split()[0]) + unknown * ("?" in shown) == len(ranks)
