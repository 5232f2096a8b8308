"""Ray and vLLM."""

from __future__ import annotations

from typing import Any

from ..made_up import job, look, rank
from .scenes import Facts, Shows, causes_of


def one(*frames: str, **more: Any) -> Facts:
    return job(world=1), [rank(0, look(*frames, "<module> train.py:9", call="futex"), **more)]


def ray_placement() -> Facts:
    return one(
        "get_objects SP/ray/_private/worker.py:900",
        "wait SP/ray/_private/worker.py:3000",
        "_wait_until_pg_ready SP/vllm/executor/ray_utils.py:201",
        output=("Error: No available node types can fulfill resource request {'GPU': 8.0}",),
    )


def ray_task() -> Facts:
    return one(
        "get_objects SP/ray/_private/worker.py:900",
        "get SP/ray/_private/worker.py:2753",
        "auto_init_wrapper SP/ray/_private/client_mode_hook.py:103",
    )


def ray_start() -> Facts:
    return one(
        "GlobalState._connect_and_get_accessor SP/ray/_private/state.py:60",
        "init SP/ray/_private/worker.py:1700",
    )


def vllm_workers() -> Facts:
    return one(
        "acquire_read SP/vllm/distributed/device_communicators/shm_broadcast.py:460",
        "dequeue SP/vllm/distributed/device_communicators/shm_broadcast.py:540",
        output=("No available shared memory broadcast block found in 60 seconds.",),
    )


SHOWS: Shows = {
    "ray-placement": ray_placement,
    "ray-task": ray_task,
    "ray-start": ray_start,
    "vllm-workers": vllm_workers,
}


def test_a_program_that_only_uses_ray_somewhere_waits_for_no_place() -> None:
    found = causes_of(one("step STD/queue.py:171", "Queue.get STD/queue.py:171"))
    assert not set(SHOWS) & set(found)
