"""How long a training will take, from measured steps."""

from __future__ import annotations

from hangbisect.pipelines.budget_advice import estimate_training_time, format_training_time


def test_the_first_step_is_left_out_where_there_are_others() -> None:
    time = estimate_training_time([60.0, 4.0, 5.0, 4.5], examples=15_000, epochs=15, batch=16)
    assert time is not None
    assert (time.step, time.measured) == (4.5, 3)
    assert time.steps == 15 * 937
    assert format_training_time(time) == "14,055 steps at 4.5 s (3 steps measured): 17.6 h"


def test_one_step_is_better_than_none() -> None:
    time = estimate_training_time([2.0], examples=8, epochs=1, batch=16)
    assert time is not None
    assert (time.steps, time.whole) == (1, 2.0)
    assert estimate_training_time([], examples=8, epochs=1, batch=16) is None
