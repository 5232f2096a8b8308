"""Which rank a process of a server is, by the arguments of what makes it one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hangbisect.rank.watched.server_ranks import number_sglang_scheduler, number_vllm_worker


def vllm(**parallel: Any) -> SimpleNamespace:
    return SimpleNamespace(parallel_config=SimpleNamespace(**parallel))


def test_a_worker_of_vllm_has_its_number_and_its_world() -> None:
    assert number_vllm_worker({"vllm_config": vllm(world_size=4), "rank": 3}) == (3, 4)


def test_each_engine_of_several_counts_its_own_workers() -> None:
    config = vllm(world_size=2, data_parallel_size=2, data_parallel_rank=1)
    assert number_vllm_worker({"vllm_config": config, "rank": 1}) == (3, 4)


def test_a_scheduler_of_sglang_counts_stages_and_engines() -> None:
    args = SimpleNamespace(tp_size=2, pp_size=2, dp_size=2, enable_dp_attention=False)
    given = {"server_args": args, "tp_rank": 1, "pp_rank": 1, "dp_rank": 1}
    assert number_sglang_scheduler(given) == (7, 8)
    assert number_sglang_scheduler({**given, "dp_rank": None}) == (3, 4)


def test_what_another_version_has_differently_is_no_number() -> None:
    assert number_vllm_worker({"config": vllm(world_size=4), "rank": 3}) is None
    assert number_vllm_worker({"vllm_config": vllm(world_size=4), "rank": "3"}) is None
    assert number_vllm_worker({"vllm_config": vllm(world_size=2), "rank": 2}) is None
    assert number_sglang_scheduler({"server_args": SimpleNamespace(), "tp_rank": 0}) is None
