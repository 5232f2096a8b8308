"""vLLM."""

from __future__ import annotations

from typing import Any

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


SHOWS: Shows = {
    "vllm-workers": vllm_workers,
}


def test_a_program_that_waits_for_a_queue_of_its_own_waits_for_no_engine() -> None:
    found = causes_of(one("step STD/queue.py:171", "Queue.get STD/queue.py:171"))
    assert not set(SHOWS) & set(found)
