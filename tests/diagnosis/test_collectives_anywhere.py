"""One rank does something else, anywhere in any program: it is found, and nobody else is blamed."""

from __future__ import annotations

from collections.abc import Sequence

from hangbisect.base.rank_facts import RankFacts
from hangbisect.diagnosis.collectives.collective_mismatch import Mismatch
from hangbisect.diagnosis.collectives.log_divergence import find_mismatch, find_mismatched_ranks
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ..examples import examples
from .logs import Call, hangs, ran, rank

KINDS = ("all_reduce", "barrier", "broadcast")
NEW = "train.py:99 another"
# Most programs hang once they are changed, but not all; and the machine may be busy.
ANY = settings(
    deadline=None,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

calls = st.builds(
    lambda kind, line: Call(kind, f"train.py:{line} f"), st.sampled_from(KINDS), st.integers(1, 6)
)


@st.composite
def programs(draw: st.DrawFn) -> list[Call]:
    """A setup, a loop, and an end, as training is."""
    setup = draw(st.lists(calls, max_size=6))
    body = draw(st.lists(calls, min_size=1, max_size=4))
    end = draw(st.lists(calls, max_size=4))
    return [*setup, *(body * draw(st.integers(1, 6))), *end]


def many(data: st.DataObject, program: list[Call], odd: list[Call]) -> tuple[int, list[list[Call]]]:
    world = data.draw(st.integers(3, 6))
    who = data.draw(st.integers(0, world - 1))
    return who, [odd if r == who else program for r in range(world)]


def logged(data: st.DataObject, run: Sequence[Sequence[Call]]) -> list[RankFacts]:
    assume(hangs(run) is not None)
    return ran(run, window=data.draw(st.sampled_from([None, None, 40])))


def assert_it_is(who: int, found: Mismatch | None) -> None:
    """It is one against the others: the others went on without it, or it without them."""
    assert found is not None
    assert found.ranks == (who,) or (not found.is_sure and found.others == (who,))


@ANY
@given(st.data(), programs(), st.sampled_from(KINDS))
def test_a_call_put_in_is_found_and_its_site_named(
    data: st.DataObject, program: list[Call], kind: str
) -> None:
    at = data.draw(st.integers(0, len(program)))
    who, run = many(data, program, [*program[:at], Call(kind, NEW), *program[at:]])
    found = find_mismatch(logged(data, run))
    assert_it_is(who, found)
    assert found is not None
    if found.is_sure:
        assert found.operation.site == NEW


@ANY
@given(st.data(), programs())
def test_a_call_left_out_is_put_down_to_its_rank(data: st.DataObject, program: list[Call]) -> None:
    at = data.draw(st.integers(0, len(program) - 1))
    who, run = many(data, program, [*program[:at], *program[at + 1 :]])
    assert_it_is(who, find_mismatch(logged(data, run)))


@ANY
@given(st.data(), programs())
def test_two_calls_in_the_other_order_are_put_down_to_their_rank(
    data: st.DataObject, program: list[Call]
) -> None:
    assume(len(program) > 1)
    at = data.draw(st.integers(0, len(program) - 2))
    swapped = [*program[:at], program[at + 1], program[at], *program[at + 2 :]]
    assume(swapped != program)
    who, run = many(data, program, swapped)
    assert_it_is(who, find_mismatch(logged(data, run)))


@ANY
@given(st.data(), programs(), st.sampled_from(KINDS))
def test_another_call_in_its_place_is_put_down_to_its_rank(
    data: st.DataObject, program: list[Call], kind: str
) -> None:
    at = data.draw(st.integers(0, len(program) - 1))
    odd = [*program[:at], Call(kind, NEW), *program[at + 1 :]]
    who, run = many(data, program, odd)
    assert_it_is(who, find_mismatch(logged(data, run)))


@ANY
@given(st.data(), programs(), st.sampled_from(KINDS))
def test_of_two_ranks_the_one_with_a_call_more_is_named_once_they_agreed_again(
    data: st.DataObject, program: list[Call], kind: str
) -> None:
    """Where the two hang at once in different calls, it cannot be told: both, or the right one."""
    at, who = data.draw(st.integers(0, len(program))), data.draw(st.integers(0, 1))
    odd = [*program[:at], Call(kind, NEW), *program[at:]]
    run = [odd, program] if who == 0 else [program, odd]
    found = find_mismatch(logged(data, run))
    assert found is not None
    if found.is_sure:
        assert who in found.ranks
        assert found.ranks == (who,) or hangs(run) == at


@ANY
@given(st.data(), programs())
def test_ranks_that_do_the_same_are_not_blamed_however_far_each_came(
    data: st.DataObject, program: list[Call]
) -> None:
    ends = data.draw(st.lists(st.integers(0, len(program) - 1), min_size=2, max_size=5))
    window = data.draw(st.sampled_from([None, 5, 20]))
    ranks = [rank(r, program, end, window) for r, end in enumerate(ends)]
    assert find_mismatched_ranks(ranks) == ()


@ANY
@given(st.data(), programs())
def test_a_root_that_calls_from_another_line_is_not_blamed(
    data: st.DataObject, program: list[Call]
) -> None:
    root = [Call(c.kind, c.site + " as root") if data.draw(st.booleans()) else c for c in program]
    end = data.draw(st.integers(0, len(program) - 1))
    assert (
        find_mismatched_ranks([rank(0, root, end), rank(1, program, end), rank(2, program, end)])
        == ()
    )


@ANY
@given(st.data(), programs(), st.integers(3, 12))
def test_what_lies_before_the_window_blames_no_wrong_rank(
    data: st.DataObject, program: list[Call], window: int
) -> None:
    at = data.draw(st.integers(0, len(program) - 1))
    who, run = many(data, program, [*program[:at], Call("barrier", NEW), *program[at:]])
    assume(hangs(run) is not None)
    assert find_mismatched_ranks(ran(run, window=window)) in ((), (who,))
