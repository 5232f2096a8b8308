"""Steps of training that come no more: not before ten times the longest pause, and --stall."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

from hangbisect.evidence.ring_reader import Pulse
from hangbisect.monitor.training_watch import (
    PAST_SECONDS,
    PAST_STEPS,
    PastStep,
    TrainingPulse,
    TrainingWatch,
)
from hypothesis import given
from hypothesis import strategies as st

from .made_up import member

SECONDS = st.floats(min_value=0.01, max_value=1000.0)


def heard(*pulses: Pulse | None, least: float = 20.0) -> TrainingPulse:
    pulse = TrainingPulse(least)
    pulse.hear(pulses)
    return pulse


def test_nobody_who_has_done_no_step_since_is_missed() -> None:
    assert not heard().has_stopped(1e6)
    assert not heard(None, Pulse(100.0, 1.0, 5)).has_stopped(1e6)
    assert not heard(Pulse(0.0, 0.0, 0)).has_stopped(1e6)
    assert not heard(Pulse(100.0, 0.0, 1)).has_stopped(1e6)  # no pause is known yet


@given(SECONDS, SECONDS, SECONDS)
def test_not_before_ten_times_the_longest_pause_nor_before_stall(
    longest: float, least: float, after: float
) -> None:
    pulse = heard(Pulse(100.0, longest, 9), Pulse(90.0, longest / 2, 9), least=least)
    assert pulse.has_stopped(100.0 + after) == (after > max(least, 10 * longest))


def test_the_pace_of_the_first_steps_is_enough() -> None:
    pulse = heard(Pulse(100.0, 1.0, 0), Pulse(99.0, 3.0, 0))
    assert not pulse.has_stopped(129.0)
    assert pulse.has_stopped(131.0)


def test_a_rank_that_goes_on_is_enough() -> None:
    pulse = heard(Pulse(100.0, 1.0, 9), Pulse(130.0, 1.0, 9))
    assert not pulse.has_stopped(149.0)
    assert pulse.has_stopped(151.0)


@given(SECONDS, st.integers(min_value=1, max_value=8))
def test_who_only_works_is_looked_at_ever_more_seldom(longest: float, times: int) -> None:
    pulse = heard(Pulse(100.0, longest, 9))
    patience = max(20.0, 10 * longest)
    for _ in range(times):
        pulse.wait_longer()
        patience *= 2
    assert not pulse.has_stopped(100.0 + patience * 0.99)
    assert pulse.has_stopped(100.0 + patience * 1.01)


def test_a_step_that_comes_ends_that() -> None:
    pulse = heard(Pulse(100.0, 1.0, 9))
    pulse.wait_longer()
    pulse.hear([Pulse(200.0, 1.0, 10)])
    assert not pulse.has_stopped(219.0)
    assert pulse.has_stopped(221.0)


def test_a_job_that_was_kept_from_running_has_its_time_again() -> None:
    pulse = heard(Pulse(100.0, 1.0, 9))
    pulse.begin_anew(500.0)
    assert not pulse.has_stopped(519.0)
    assert pulse.has_stopped(521.0)


# ---- past a step that is known to hang -----------------------------------------------------------


def test_past_a_step_is_who_has_done_some_more() -> None:
    goal = PastStep(35)
    assert not goal.is_reached([35, 35], 100.0)
    assert not goal.is_reached([36, 35], 101.0)
    assert not goal.is_reached([36, 39], 102.0)
    assert goal.is_reached([36 + PAST_STEPS, 36 + PAST_STEPS], 103.0)


def test_where_steps_are_long_one_more_and_some_time_are_enough() -> None:
    goal = PastStep(35)
    assert not goal.is_reached([36, 36], 100.0)
    assert not goal.is_reached([36, 36], 100.0 + PAST_SECONDS - 0.1)
    assert goal.is_reached([36, 36], 100.0 + PAST_SECONDS)


def test_the_time_begins_once_every_rank_is_past_it() -> None:
    goal = PastStep(35)
    assert not goal.is_reached([36, 35], 100.0)
    assert not goal.is_reached([36, 36], 200.0)
    assert goal.is_reached([37, 36], 200.0 + PAST_SECONDS)


def test_of_whom_nothing_is_counted_nobody_is_past_anything() -> None:
    assert not PastStep(35).is_reached([None, 99], 100.0)
    assert not PastStep(35).is_reached([], 100.0)


def test_ranks_tell_how_many_steps_they_have_done() -> None:
    pulse = heard(Pulse(100.0, 1.0, 9), None, Pulse(90.0, 1.0, 8))
    assert pulse.steps == 9


# ---- a training of one step ----------------------------------------------------------------------


def of_one_step(*left_at: float | None) -> TrainingWatch:
    """A watch of ranks that have done one step, and ended then (monotonic) or not."""
    ranks = [member(n, quiet=True, left=at is not None, left_at=at) for n, at in enumerate(left_at)]
    logs = SimpleNamespace(read_pulse=lambda rank: Pulse(90.0, 0.0, 1))
    limits, outer = SimpleNamespace(stall=20.0), SimpleNamespace(awaits_ready=False)
    job = SimpleNamespace(members=ranks, logs=logs, limits=limits, outer=outer)
    return TrainingWatch(job)  # type: ignore[arg-type]


def test_who_is_there_long_after_another_has_ended_is_looked_at() -> None:
    watch = of_one_step(None, 100.0)
    assert not watch.has_stopped(119.0)
    assert watch.has_stopped(121.0)
    watch.pulse.wait_longer()  # it was at work
    assert not watch.has_stopped(139.0)
    assert watch.has_stopped(141.0)


def test_while_all_are_there_or_none_is_nobody_is_left_behind() -> None:
    assert not of_one_step(None, None).has_stopped(1e6)
    assert not of_one_step(100.0, 100.0).has_stopped(1e6)


# ---- several nodes: what waits for ranks that are not seen --------------------------------------


class Inquiring:
    """An inquiry that finds all ranks still, and holds the verdict back as it does alone."""

    def __init__(self, job: Any, holds_back: bool = True) -> None:
        self.job, self.holds_back = job, holds_back

    async def look_until_clear(self, due: Any, why: str) -> None:
        if self.holds_back:
            self.job.held_back = SimpleNamespace(at=time.monotonic())


def training(*pulses: Pulse) -> tuple[TrainingWatch, Any]:
    """A watch of ranks that are past their first steps, and whose last steps are long ago."""
    ranks = [member(number, quiet=True, trained=9) for number in range(len(pulses))]
    kept = dict(enumerate(pulses))
    logs = SimpleNamespace(kept=kept, read_pulse=lambda rank: kept.get(rank))
    limits = SimpleNamespace(stall=4.0)
    outer = SimpleNamespace(awaits_ready=False)
    job = SimpleNamespace(
        members=ranks, logs=logs, limits=limits, outer=outer, verdict=None, held_back=None
    )
    watch = TrainingWatch(job)  # type: ignore[arg-type]  # what is read of a job
    assert watch.has_stopped(time.monotonic())
    asyncio.run(watch.look(Inquiring(job), time.monotonic()))  # type: ignore[arg-type]
    return watch, job


OLD = Pulse(1.0, 0.1, 9)


def test_who_is_held_back_is_watched_on() -> None:
    watch, job = training(OLD)
    still_since = job.members[0].moved_at
    watch.hear_what_comes()
    assert not job.members[0].quiet
    assert job.members[0].moved_at == still_since


def test_a_step_makes_who_was_held_back_quiet_again() -> None:
    watch, job = training(OLD, OLD)
    job.logs.kept[1] = Pulse(time.monotonic(), 0.1, 10)
    watch.hear_what_comes()
    assert all(one.quiet for one in job.members)
    assert not watch.has_stopped(time.monotonic())


def test_a_step_that_ends_a_look_makes_who_was_held_back_quiet_again() -> None:
    watch, job = training(OLD)
    job.logs.kept[0] = Pulse(time.monotonic(), 0.1, 10)
    assert watch.goes_on()
    watch.hear_what_comes()
    assert job.members[0].quiet


def test_movement_makes_who_was_held_back_quiet_again_and_is_waited_for_longer() -> None:
    watch, job = training(OLD)
    patience = watch.pulse.patience
    job.members[0].moved_at = time.monotonic() + 1.0
    watch.hear_what_comes()
    assert job.members[0].quiet
    assert watch.pulse.patience == 2 * patience


def test_a_verdict_ends_the_holding_back() -> None:
    watch, job = training(OLD)
    job.verdict = object()
    watch.hear_what_comes()
    assert watch.has_verdict
    assert not job.members[0].quiet


def test_who_is_not_held_back_is_quiet_again() -> None:
    watch, job = training(OLD)
    asyncio.run(
        watch.look(Inquiring(job, holds_back=False), time.monotonic())  # type: ignore[arg-type]
    )
    assert job.members[0].quiet
