"""Inference servers."""

from __future__ import annotations

from typing import Any

from hangbisect.base.process_facts import TakenPort

from ..made_up import job, look, rank
from .scenes import Facts, Shows, causes_of


def one(*frames: str, **more: Any) -> Facts:
    return job(world=1), [rank(0, look(*frames, "<module> train.py:9", call="futex"), **more)]


def vllm_workers() -> Facts:
    return one(
        "acquire_read SP/vllm/distributed/device_communicators/shm_broadcast.py:460",
        "dequeue SP/vllm/distributed/device_communicators/shm_broadcast.py:540",
        output=("No available shared memory broadcast block found in 60 seconds.",),
    )


def waits_for_port(*taken: TakenPort) -> Facts:
    waits = look(
        "wait_port_available SP/sglang/srt/utils/common.py:42",
        "_launch_subprocesses SP/sglang/srt/entrypoints/engine.py:9",
        call="clock_nanosleep",
        taken_ports=taken,
    )
    return job(world=1), [rank(0, waits)]


def port_taken() -> Facts:
    return waits_for_port(TakenPort(30000, 4711, "scheduler TP0"))


SHOWS: Shows = {
    "port-taken": port_taken,
    "vllm-workers": vllm_workers,
}


def test_a_program_that_waits_for_a_queue_of_its_own_waits_for_no_engine() -> None:
    found = causes_of(one("step STD/queue.py:171", "Queue.get STD/queue.py:171"))
    assert not set(SHOWS) & set(found)


def test_who_listens_at_the_port_is_named() -> None:
    (cause,) = [one for one in causes_of(port_taken()).values() if one.id == "port-taken"]
    assert cause.matched[0] == "scheduler TP0 (pid 4711) listens at port 30000"


def test_a_port_that_nobody_is_known_to_have_is_not_taken() -> None:
    assert "port-taken" not in causes_of(waits_for_port())
    assert "port-taken" not in causes_of(waits_for_port(TakenPort(30000, None)))
