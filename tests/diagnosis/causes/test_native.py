"""Native code that does not come back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.process_facts import Look

from ..made_up import ALL_REDUCE, held, job, look, rank
from .scenes import Facts, Shows, causes_of
from .seen import LIBC, PYTHON, native

FFI = "/usr/lib/libffi.so.8"
PAUSES = native(
    look("load_model train.py:30", "<module> train.py:50", call="pause", wchan="__do_sys_pause"),
    ("pause", LIBC),
    ("ffi_call_int", FFI),
    ("ffi_call", FFI),
    ("_call_function_pointer", "/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311.so"),
)


def native_call() -> Facts:
    return job(), [rank(0, PAUSES, PAUSES), held(1)]


def signal_wait() -> Facts:
    waits = native(
        look(
            "sigwait STD/signal.py:63",
            "wait_for_leave train.py:30",
            "<module> train.py:50",
            call="rt_sigtimedwait",
        ),
        ("sigwait", LIBC),
        ("signal_sigwait", PYTHON),
    )
    return job(), [rank(0, waits), held(1)]


def busy_loop() -> Facts:
    spins: Look = native(
        look("wait_for_peers transport.py:8", "<module> train.py:50", call="", state="R"),
        ("wait_for_peers", "/home/ada/transport/libtransport.so"),
        ("ffi_call_int", FFI),
    )
    return job("busy"), [rank(n, spins, spins, busy=True) for n in (0, 1)]


SHOWS: Shows = {
    "native-call": native_call,
    "signal-wait": signal_wait,
    "busy-loop": busy_loop,
}


def test_the_function_and_its_library_are_named() -> None:
    assert "pause (libc.so.6)" in causes_of(native_call())["native-call"].why
    assert "libtransport.so" in causes_of(busy_loop())["busy-loop"].why


def test_that_a_loop_is_beyond_its_deadline_is_said_only_where_there_is_one() -> None:
    """`attach` knows of none: it said so of a healthy job that was slow to import."""
    made, ranks = busy_loop()
    late = replace(made, past_deadline=240.0)
    assert "deadline" not in " ".join(causes_of((made, ranks))["busy-loop"].matched)
    assert "far beyond the step's deadline" in causes_of((late, ranks))["busy-loop"].matched


def test_time_sleep_is_pythons_own_and_no_native_call() -> None:
    sleeps = native(
        look("load_model train.py:30", call="clock_nanosleep", wchan="hrtimer_nanosleep"),
        ("clock_nanosleep", LIBC),
        ("time_sleep", PYTHON),
    )
    assert "native-call" not in causes_of((job(), [rank(0, sleeps), held(1)]))


def test_a_native_call_that_keeps_the_gil_is_another_matter() -> None:
    keeps = native(
        look("load_model train.py:30", call="clock_nanosleep", gil=True), ("sleep", LIBC)
    )
    assert "native-call" not in causes_of((job(), [rank(0, keeps, keeps), held(1)]))


def test_a_collective_is_no_native_call_of_the_job() -> None:
    meets = native(
        look("all_reduce SP/torch/distributed/distributed_c10d.py:3252", "step train.py:9"),
        ("gloo::transport::tcp::Buffer::waitRecv", "/venv/lib/libtorch_cpu.so"),
    )
    assert "native-call" not in causes_of((job(), [rank(n, meets) for n in (0, 1)]))


@pytest.mark.parametrize(
    "inside", ["torch::distributed::rpc::PyRRef::toHere", "c10d::TCPStore::doWait"]
)
def test_a_wait_for_another_rank_in_torchs_own_code_is_no_native_call_either(inside: str) -> None:
    waits = native(
        look("main train.py:45", call="futex"),
        ("std::condition_variable::wait", "/usr/lib/libstdc++.so.6"),
        (inside, "/venv/lib/libtorch_cpu.so"),
    )
    assert "native-call" not in causes_of((job(), [rank(0, waits), held(1)]))


def test_a_wait_for_a_thread_of_its_own_in_a_collective_is_no_native_call() -> None:
    """The callback of a future sums once more, in the thread of gloo that has made it come true."""
    waits = native(
        look("wait_all SP/torch/futures/__init__.py:334", "main train.py:39", call="futex"),
        ("std::condition_variable::wait", "/usr/lib/libstdc++.so.6"),
        ("torch::jit::PythonFutureWrapper::wait", "/venv/lib/libtorch_python.so"),
    )
    sums = look("all_reduce SP/torch/distributed/distributed_c10d.py:3252", "arrived train.py:26")
    beside = replace(sums.threads[0], name="", os_id=900)
    waits = replace(waits, threads=(*waits.threads, beside))
    facts = job(world=3), [rank(1, waits, waits), *(rank(n, ALL_REDUCE) for n in (0, 2))]
    found = causes_of(facts)
    assert "native-call" not in found
    assert next(iter(found)) == "rank-conditional-collective"


def test_a_rank_that_moves_does_not_spin() -> None:
    works = look("step train.py:9", "<module> train.py:50", call="", state="R")
    facts = job("limit"), [rank(0, works, works, moved="reads 9 MiB/s"), held(1)]
    assert "busy-loop" not in causes_of(facts)


def test_who_catches_the_signal_of_a_timer_may_be_woken_by_its_own() -> None:
    facts, ranks = signal_wait()
    sleeps = tuple(replace(one, timer_signals=(14,)) for one in ranks[0].looks)
    assert "signal-wait" not in causes_of((facts, [replace(ranks[0], looks=sleeps), *ranks[1:]]))
