"""Which captured inputs each rank takes."""

from __future__ import annotations

from hangbisect.pipelines.replay_inputs import assign_ranks, count_forwards, select_share
from hypothesis import given
from hypothesis import strategies as st

CAPTURED = st.lists(st.integers(0, 40), min_size=1, max_size=60)  # the rank of each input
REPLAYING = st.integers(1, 12)
MOST = st.none() | st.integers(1, 20)


def test_with_as_many_ranks_each_takes_its_own() -> None:
    assert assign_ranks(range(3), 3) == [(0,), (1,), (2,)]
    assert select_share([0, 1, 2, 1], 1, 3) == [1, 3]


def test_fewer_ranks_take_those_of_the_ranks_modulo_their_number() -> None:
    assert assign_ranks(range(5), 2) == [(0, 2, 4), (1, 3)]
    assert select_share([3, 2, 1, 0], 1, 2) == [0, 2]


def test_of_more_ranks_those_without_any_take_anothers_again() -> None:
    assert assign_ranks([0, 1], 5) == [(0,), (1,), (0,), (1,), (0,)]
    assert assign_ranks([7], 3) == [(7,), (7,), (7,)]


def test_without_any_input_nobody_has_one() -> None:
    assert assign_ranks([], 2) == [(), ()]
    assert count_forwards([], 2) == 0


@given(CAPTURED, REPLAYING)
def test_every_input_is_taken_by_somebody(captured: list[int], replaying: int) -> None:
    taken = {at for n in range(replaying) for at in select_share(captured, n, replaying)}
    assert taken == set(range(len(captured)))


@given(st.data(), REPLAYING)
def test_none_is_taken_twice_where_every_rank_has_its_own(
    data: st.DataObject, replaying: int
) -> None:
    extra = data.draw(st.lists(st.integers(0, 40), max_size=60))
    captured = data.draw(st.permutations([*range(replaying), *extra]))
    taken = [at for n in range(replaying) for at in select_share(captured, n, replaying)]
    assert sorted(taken) == list(range(len(captured)))


@given(CAPTURED, REPLAYING)
def test_nobody_is_without_and_all_is_somebodys(captured: list[int], replaying: int) -> None:
    found = assign_ranks(captured, replaying)
    assert len(found) == replaying
    assert all(found)
    assert {rank for ranks in found for rank in ranks} == set(captured)


@given(CAPTURED, REPLAYING, MOST)
def test_all_do_as_many_forwards_as_the_rank_with_most_inputs(
    captured: list[int], replaying: int, most: int | None
) -> None:
    shares = [select_share(captured, n, replaying, most) for n in range(replaying)]
    assert count_forwards(captured, replaying, most) == max(map(len, shares))
    assert all(0 < len(share) <= (most or len(captured)) for share in shares)


@given(CAPTURED, REPLAYING, st.integers(1, 20))
def test_of_fewer_inputs_a_rank_takes_its_first(
    captured: list[int], replaying: int, most: int
) -> None:
    for number in range(replaying):
        whole = select_share(captured, number, replaying)
        assert select_share(captured, number, replaying, most) == whole[:most]
        assert whole == sorted(whole)
