"""For whom signals are meant."""

from __future__ import annotations

from hangbisect.monitor.rank_exits import SIGNALLED_TOGETHER, find_signal_target
from hypothesis import given
from hypothesis import strategies as st


def test_without_a_signal_nobody_is_told_to_go() -> None:
    assert find_signal_target({}, [0, 1], 10.0) == "nobody"


def test_a_signal_to_every_living_rank_is_for_the_job_at_once() -> None:
    assert find_signal_target({0: 10.0, 1: 10.0}, [0, 1], 10.0) == "job"
    assert find_signal_target({0: 10.0}, [0], 10.0) == "job"


def test_a_rank_that_alone_was_sent_a_signal_is_told_from_the_job_after_a_while() -> None:
    assert find_signal_target({1: 10.0}, [0, 1], 10.1) is None
    assert find_signal_target({1: 10.0}, [0, 1], 10.0 + SIGNALLED_TOGETHER) == "one"


def test_a_rank_that_does_not_hear_is_told_to_go_with_the_others() -> None:
    heard = {0: 10.0, 1: 10.1, 3: 10.1}
    assert find_signal_target(heard, range(4), 10.2) is None
    assert find_signal_target(heard, range(4), 10.0 + SIGNALLED_TOGETHER) == "job"


def test_the_signal_of_a_rank_that_has_left_is_for_nobody() -> None:
    assert find_signal_target({1: 10.0}, [0], 20.0) == "nobody"


@given(
    st.dictionaries(st.integers(0, 5), st.floats(0, 9)),
    st.sets(st.integers(0, 5)),
    st.floats(0, 9),
)
def test_after_a_while_it_is_always_clear(
    heard: dict[int, float], living: set[int], now: float
) -> None:
    assert find_signal_target(heard, living, now + 10.0) is not None
