"""Which rank a process of an inference server is, as the function is told that makes it one: long
before it joins a process group, and perhaps it never does. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .process_role import GroupNumbers


def number_vllm_worker(values: Mapping[str, Any]) -> GroupNumbers | None:
    """Return the numbers of a worker of vLLM by the arguments of WorkerProc (vllm/v1/executor/
    multiproc_executor.py), None where they do not tell. Each engine of several counts its own.
    """
    parallel = getattr(values.get("vllm_config"), "parallel_config", None)
    size = getattr(parallel, "world_size", None)
    engines = getattr(parallel, "data_parallel_size", 1)
    engine = getattr(parallel, "data_parallel_rank", 0)
    return _make_numbers(values.get("rank"), size, engine, engines)


def number_sglang_scheduler(values: Mapping[str, Any]) -> GroupNumbers | None:
    """Return the numbers of a scheduler of SGLang by the arguments of run_scheduler_process
    (sglang/srt/managers/scheduler.py), None where they do not tell.
    """
    given = values.get("server_args")
    size: Any = getattr(given, "tp_size", None)
    stages: Any = getattr(given, "pp_size", 1)
    rank: Any = values.get("tp_rank")
    stage: Any = values.get("pp_rank", 0)
    if not all(map(_is_rank_number, (size, stages, rank, stage))):
        return None
    alone = getattr(given, "enable_dp_attention", False) or values.get("dp_rank") is None
    engine, engines = (0, 1) if alone else (values["dp_rank"], getattr(given, "dp_size", 1))
    return _make_numbers(stage * size + rank, size * stages, engine, engines)


def _make_numbers(rank: Any, size: Any, engine: Any, engines: Any) -> GroupNumbers | None:
    if (
        not all(map(_is_rank_number, (rank, size, engine, engines)))
        or rank >= size
        or engine >= engines
    ):
        return None
    return GroupNumbers(engine * size + rank, size * engines)


def _is_rank_number(value: Any) -> bool:
    return isinstance(value, int) and value >= 0
