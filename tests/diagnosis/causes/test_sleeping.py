"""Code of the job's own that sleeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangbisect.facts import Look

from ..made_up import ALL_REDUCE, job, look, rank
from .scenes import Facts, Shows, causes_of

SLEEPS = look(
    "Warmup.on_train_start callbacks.py:12",
    "_call_callback_hooks SP/pytorch_lightning/trainer/call.py:228",
    "<module> train.py:30",
    call="clock_nanosleep",
    wchan="hrtimer_nanosleep",
)


def asleep(one: Look, left: float) -> Look:
    main = one.kernel[0]
    assert main.syscall is not None
    call = replace(main.syscall, timeout=left)
    return replace(one, kernel=(replace(main, syscall=call),))


def beside_a_waiting_rank(*looks: Look, **more: Any) -> Facts:
    return job(), [rank(0, ALL_REDUCE, ALL_REDUCE), replace(rank(1, *looks), **more)]


def swallowed_exception() -> Facts:
    said = ("WARNING:callbacks:will retry later: no statistics of the last run",)
    return beside_a_waiting_rank(asleep(SLEEPS, 9e6), asleep(SLEEPS, 9e6), output=said)


def polling_loop() -> Facts:
    return beside_a_waiting_rank(asleep(SLEEPS, 0.7), asleep(SLEEPS, 0.2))


def own_code_sleeps() -> Facts:
    return beside_a_waiting_rank(asleep(SLEEPS, 3000.0), asleep(SLEEPS, 2990.0))


def retry_loop() -> Facts:
    tries = look(
        "sleep SP/tenacity/nap.py:31",
        "__call__ SP/tenacity/__init__.py:480",
        "wrapped_f SP/tenacity/__init__.py:338",
        "load_index data.py:12",
        "<module> train.py:30",
        call="clock_nanosleep",
    )
    return beside_a_waiting_rank(tries, tries)


SHOWS: Shows = {
    "swallowed-exception": swallowed_exception,
    "polling-loop": polling_loop,
    "own-code-sleeps": own_code_sleeps,
    "retry-loop": retry_loop,
}


def test_none_of_them_is_ever_sure() -> None:
    for name, facts in SHOWS.items():
        assert causes_of(facts())[name].confidence <= 0.8


def test_where_it_sleeps_is_said() -> None:
    why = causes_of(polling_loop())["polling-loop"].why
    assert "Warmup.on_train_start (callbacks.py:12)" in why


def test_a_library_that_sleeps_is_not_the_jobs_own_code() -> None:
    waits = look(
        "FileBaton.wait SP/torch/utils/file_baton.py:52",
        "<module> train.py:3",
        call="clock_nanosleep",
    )
    assert not set(SHOWS) & set(causes_of(beside_a_waiting_rank(waits, waits)))


def test_what_computes_does_not_sleep() -> None:
    works = look("step train.py:5", call="", state="R")
    assert not set(SHOWS) & set(causes_of(beside_a_waiting_rank(works, works)))
