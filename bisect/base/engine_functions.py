"""Rows of the table of libraries' functions (base/library_functions.py): Ray, the servers that
infer, and the trainers of reinforcement learning that wait for these.
"""

from __future__ import annotations

from .library_roles import LibraryFunction, Role

_RAY_WORKER = r"ray/_private/worker\.py"
_RAY_CHANNEL = r"ray/experimental/channel/shared_memory_channel\.py"  # of compiled graphs

ENGINE_FUNCTIONS = (
    # Ray
    LibraryFunction(
        _RAY_WORKER,
        r"get_objects|get|wait",
        frozenset([Role.AWAITS_ACTORS]),
        locals="num_returns",
        limit="timeout",
    ),
    LibraryFunction(_RAY_WORKER, r"init", locals="address"),
    LibraryFunction(_RAY_CHANNEL, r"read|write", frozenset([Role.SPINS_FOR_OTHERS])),
    LibraryFunction(
        r"ray/util/placement_group\.py",
        r"wait|placement_group|ready",
        locals="bundles strategy",
        limit="timeout_seconds",
    ),
    # inference servers, once they are ready
    LibraryFunction(
        r"vllm/v1/executor/multiproc_executor\.py",
        r"worker_busy_loop",
        frozenset([Role.SERVES_REQUESTS]),
    ),
    LibraryFunction(
        r"vllm/v1/engine/core\.py",
        r"run_busy_loop|_process_input_queue|_handle_shutdown",
        frozenset([Role.SERVES_REQUESTS]),
    ),
    LibraryFunction(
        r"sglang/srt/managers/scheduler\w*\.py",
        r"(?:run_)?event_loop\w*",
        frozenset([Role.SERVES_REQUESTS]),
    ),
    LibraryFunction(
        r"sglang/srt/managers/scheduler\.py", r"run_scheduler_process", locals="tp_rank pp_rank"
    ),
    LibraryFunction(
        r"sglang/srt/utils/\w+\.py",
        r"wait_port_available",
        frozenset([Role.AWAITS_PORT]),
        locals="port port_name",
        limit="timeout_s",
    ),
    LibraryFunction(
        r"trl/extras/vllm_client\.py|trl/generation/vllm_client\.py",
        r"check_server",
        frozenset([Role.ASKS_SERVER]),
        locals="url retry_interval",
        limit="total_timeout",
    ),
)
