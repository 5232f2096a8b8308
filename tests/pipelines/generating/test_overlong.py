"""The word while a generation takes long."""

from __future__ import annotations

import threading

from hangbisect.pipelines.generation import AGAIN, warn_while_slow

LIMIT = 60.0  # seconds for a thread to have its turn, on a busy machine


def test_it_comes_twice_while_the_work_goes_on() -> None:
    said: list[float] = []
    twice = threading.Event()

    def warn(seconds: float) -> None:
        said.append(seconds)
        if len(said) == 2:
            twice.set()

    with warn_while_slow(0.01, warn):
        assert twice.wait(LIMIT)
    assert said == [0.01, 0.01 * AGAIN]


def test_work_that_is_done_in_time_is_not_warned_of_and_leaves_no_thread() -> None:
    said: list[float] = []
    before = threading.active_count()
    with warn_while_slow(LIMIT, said.append):
        pass
    assert not said
    assert threading.active_count() == before
