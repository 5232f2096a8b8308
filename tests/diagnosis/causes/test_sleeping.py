"""Code of the job's own that sleeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangbisect.base.process_facts import Look
from hangbisect.diagnosis.verdict import judge_job

from ..made_up import ALL_REDUCE, job, look, rank
from .scenes import Facts, Shows, causes_of
from .seen import beside, first

SLEEPS = look(
    "Warmup.on_train_start callbacks.py:12",
    "_call_callback_hooks SP/pytorch_lightning/trainer/call.py:228",
    "<module> train.py:30",
    call="clock_nanosleep",
    wchan="hrtimer_nanosleep",
)


def asleep(one: Look, left: float, at: float = 100.0) -> Look:
    main = one.kernel[0]
    assert main.syscall is not None
    call = replace(main.syscall, timeout=left)
    return replace(one, at=at, kernel=(replace(main, syscall=call),))


def beside_a_waiting_rank(*looks: Look, **more: Any) -> Facts:
    return job(), [rank(0, ALL_REDUCE, ALL_REDUCE), replace(rank(1, *looks), **more)]


def swallowed_exception() -> Facts:
    said = ("WARNING:callbacks:will retry later: no statistics of the last run",)
    return beside_a_waiting_rank(asleep(SLEEPS, 9e6), asleep(SLEEPS, 9e6), output=said)


def polling_loop() -> Facts:
    return beside_a_waiting_rank(asleep(SLEEPS, 0.7), asleep(SLEEPS, 0.2, at=101.0))


def own_code_sleeps() -> Facts:
    return beside_a_waiting_rank(asleep(SLEEPS, 3000.0), asleep(SLEEPS, 2999.0, at=101.0))


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


def caught(one: Look, *path: int) -> Look:
    """The same look whose frames at these places stand below an `except`."""
    main = one.threads[0]
    frames = tuple(
        replace(f, handler="except OSError") if n in path else f for n, f in enumerate(main.frames)
    )
    return replace(one, threads=(replace(main, frames=frames),))


SHOWS: Shows = {
    "swallowed-exception": swallowed_exception,
    "polling-loop": polling_loop,
    "own-code-sleeps": own_code_sleeps,
    "retry-loop": retry_loop,
}


def test_none_of_them_is_ever_sure() -> None:
    for name, facts in SHOWS.items():
        assert causes_of(facts())[name].agreement <= 0.8


def test_a_sleep_below_an_except_has_swallowed_an_exception() -> None:
    long = caught(asleep(SLEEPS, 9e6), 0)
    found = causes_of(beside_a_waiting_rank(long, long))
    assert next(iter(found)) == "swallowed-exception"
    assert found["swallowed-exception"].agreement > 0.8
    assert any("`except OSError`" in fact for fact in found["swallowed-exception"].matched)
    assert "own-code-sleeps" not in found


def test_an_event_below_an_except_is_waited_for_in_vain_as_well() -> None:
    waits = look(
        "Condition.wait STD/threading.py:327",
        "Event.wait STD/threading.py:629",
        "Warmup.on_train_start callbacks.py:12",
        "<module> train.py:30",
        args=(0x7F00, 137, 0, 0, 0, 0xFFFFFFFF),
    )
    assert next(iter(causes_of(beside_a_waiting_rank(waits)))) == "dead-producer"
    below = caught(waits, 2)
    assert next(iter(causes_of(beside_a_waiting_rank(below)))) == "swallowed-exception"


def test_a_loop_that_tries_again_and_again_has_swallowed_nothing() -> None:
    short = [caught(asleep(SLEEPS, 0.5, at), 0) for at in (100.0, 101.0)]
    found = causes_of(beside_a_waiting_rank(*short))
    assert next(iter(found)) == "polling-loop"


def test_one_sleep_that_goes_on_is_no_loop_however_short_it_is() -> None:
    """The kernel counts it down: it is the same at both looks."""
    found = causes_of(beside_a_waiting_rank(asleep(SLEEPS, 37.3), asleep(SLEEPS, 36.3, at=101.0)))
    assert next(iter(found)) == "own-code-sleeps"
    assert "polling-loop" not in found


def test_an_except_far_out_is_not_why_it_sleeps() -> None:
    far = caught(asleep(SLEEPS, 9e6), 2)
    assert next(iter(causes_of(beside_a_waiting_rank(far, far)))) == "own-code-sleeps"


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


def in_a_thread(left: float, at: float) -> Look:
    """The main thread waits for one of its own that sleeps."""
    waits = look(
        "Condition.wait STD/threading.py:327",
        "Future.result STD/concurrent/futures/_base.py:451",
        "<module> train.py:30",
    )
    frames = ("make_data data.py:12", "_WorkItem.run STD/concurrent/futures/thread.py:58")
    one = beside(replace(waits, at=at), ("ThreadPoolExecutor-0_0", frames), call="clock_nanosleep")
    main, thread = one.kernel
    assert thread.syscall is not None
    slept = replace(thread, syscall=replace(thread.syscall, timeout=left))
    return replace(one, kernel=(main, slept))


def test_a_thread_that_sleeps_again_and_again_polls_as_a_main_thread_does() -> None:
    for looks, cause in (
        ((in_a_thread(0.7, 100.0), in_a_thread(0.2, 101.0)), "polling-loop"),
        ((in_a_thread(3000.0, 100.0), in_a_thread(2999.0, 101.0)), "own-code-sleeps"),
    ):
        seen = tuple(first(one).looks[0] for one in looks)
        sleeper = replace(rank(0, *looks), looks=seen)
        ranks = [sleeper, rank(1, ALL_REDUCE, ALL_REDUCE)]
        verdict = judge_job(job(), ranks)
        assert verdict.cause is not None
        assert (verdict.cause.id, verdict.cause.level) == (cause, "fits")


def test_a_sleep_of_which_nobody_knows_how_long_it_is_may_be_one_of_many() -> None:
    found = causes_of(beside_a_waiting_rank(SLEEPS, SLEEPS))
    assert found["own-code-sleeps"].level == "guess"
    assert causes_of(own_code_sleeps())["own-code-sleeps"].level == "fits"


def test_while_another_rank_moves_a_cause_that_is_not_seen_is_a_guess() -> None:
    """It may be on its way to where the others are: what holds them up is known only then."""
    about, ranks = own_code_sleeps()
    loads = replace(rank(2, look("load data.py:3", call="read")), moved="reads 9 MiB/s")
    for more, level in (((), "fits"), ((loads,), "guess")):
        found = causes_of((replace(about, world_size=2 + len(more)), [*ranks, *more]))
        assert found["own-code-sleeps"].level == level


def in_event(left: float, at: float, handler: str = "except FileExistsError") -> Look:
    """A rank in Event.wait() with a time limit, below an `except`."""
    one = look(
        "Condition.wait STD/threading.py:331",
        "Event.wait STD/threading.py:629",
        "build data.py:12",
        "<module> train.py:30",
        call="futex",
    )
    main = one.threads[0]
    frames = tuple(replace(f, handler=handler * (f.name == "build")) for f in main.frames)
    return asleep(replace(one, threads=(replace(main, frames=frames),)), left, at)


def test_a_pause_in_event_wait_comes_round_again_as_a_sleep_does() -> None:
    """A loop that makes a file with O_EXCL, and pauses below `except FileExistsError`."""
    loops = beside_a_waiting_rank(in_event(0.07, 100.0), in_event(0.05, 101.2))
    assert "swallowed-exception" not in causes_of(loops)
    stays = beside_a_waiting_rank(in_event(3000.0, 100.0), in_event(2998.8, 101.2))
    assert "swallowed-exception" in causes_of(stays)


def test_a_loop_that_pauses_in_event_wait_polls_as_one_that_sleeps_does() -> None:
    """`while not path.exists(): Event().wait(1)`: nobody has the event, or who has it is silent."""
    looks = in_event(0.7, 100.0, ""), in_event(0.5, 101.2, "")
    found = causes_of(beside_a_waiting_rank(*looks))["polling-loop"]
    assert found.level == "fits"
    assert "build (data.py:12)" in found.why
    once = in_event(3000.0, 100.0, ""), in_event(2998.8, 101.2, "")
    assert "polling-loop" not in causes_of(beside_a_waiting_rank(*once))


def test_beside_another_thread_of_the_job_a_loop_with_an_event_is_a_guess() -> None:
    """That thread may be to set the event, and what it waits for is the cause then."""
    other = look("recv STD/socket.py:1", "feed data.py:40", call="recvfrom").threads[0]
    looks = (
        replace(one, threads=(*one.threads, replace(other, os_id=333, name="feeder")))
        for one in (in_event(0.7, 100.0, ""), in_event(0.5, 101.2, ""))
    )
    assert causes_of(beside_a_waiting_rank(*looks))["polling-loop"].level == "guess"


TRACEBACK = (
    "ERROR:train:batch 22 failed, going on",
    "Traceback (most recent call last):",
    '  File "train.py", line 37, in main',
    "    train_step(model, batch)",
    "ValueError: expected sequence of length 3 at dim 1 (got 2)",
)


def left_out(*wrote: tuple[str, ...]) -> Facts:
    """Three ranks, of which the last is at the barrier behind the loop of the others; what each
    wrote.
    """
    reduce = ("all_reduce SP/torch/distributed/distributed_c10d.py:3252", "step train.py:30")
    barrier = ("barrier SP/torch/distributed/distributed_c10d.py:5356", "main train.py:40")
    looks = [look(*reduce), look(*reduce), look(*barrier)]
    ranks = [replace(rank(n, one, one), output=wrote[n]) for n, one in enumerate(looks)]
    return job("late", 3, pipeline=""), ranks


def test_who_wrote_a_traceback_and_went_on_has_swallowed_an_exception() -> None:
    found = causes_of(left_out((), (), TRACEBACK))
    assert next(iter(found)) == "swallowed-exception"
    assert 'wrote "ValueError: expected' in str(found["swallowed-exception"].matched)


def test_what_all_ranks_wrote_or_ended_a_thread_is_no_difference_between_them() -> None:
    for wrote in (
        (TRACEBACK, (), TRACEBACK),
        ((), (), ("Exception in thread t:", *TRACEBACK[1:])),
        ((), (), TRACEBACK[:-1]),
        ((), (), ("an error: not at the end of any traceback",)),
    ):
        assert "swallowed-exception" not in causes_of(left_out(*wrote))
