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
        r"vllm/v1/executor/multiproc_executor\.py",
        r"collective_rpc|get_response",
        frozenset([Role.AWAITS_ANSWER]),
        limit="timeout",
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
    # The group in which a trainer sends weights to an engine, of vLLM 0.33: its rank 0 serves the
    # store. The same in verl 0.9.1 (verl/utils/distributed.py) and OpenRLHF 0.11.2.
    LibraryFunction(
        r"vllm/distributed/utils\.py|verl/utils/distributed\.py",
        r"create|create_process_group|create_tcp_store",
        locals="host port rank world_size",
        limit="store_timeout",
    ),
    LibraryFunction(
        r"vllm/distributed/utils\.py",
        r"broadcast_obj|recv_obj",
        frozenset([Role.AWAITS_SOURCE]),
        locals="src key",
    ),
    LibraryFunction(
        r"vllm/v1/engine/utils\.py", r"wait_for_engine_startup", locals="conn_pending start_pending"
    ),
    LibraryFunction(r"vllm/distributed/utils\.py", r"all_gather_obj", locals="i"),
    LibraryFunction(r"vllm/distributed/utils\.py", r"barrier", limit="timeout"),
    LibraryFunction(
        r"vllm/distributed/weight_transfer/\w+\.py|openrlhf/utils/distributed_util\.py",
        r"trainer_init|(?:worker|stateless)_init_\w+",
        locals="master_address master_port rank world_size",
    ),
    LibraryFunction(
        r"openrlhf/trainer/ray/(?:vllm_worker_wrap|ppo_actor)\.py",
        r"init_process_group|_init_vllm_sync_group",
        locals="group_name rank rank_offset world_size master_address master_port use_ray",
    ),
    LibraryFunction(
        r"openrlhf/trainer/ray/vllm_worker_wrap\.py", r"update_weight\w*", locals="name shape"
    ),
    # TRL 1.16
    LibraryFunction(
        r"trl/(?:extras|generation)/vllm_client\.py",
        r"check_server",
        frozenset([Role.ASKS_SERVER]),
        locals="url retry_interval",
        limit="total_timeout",
    ),
    LibraryFunction(
        r"trl/generation/vllm_client\.py", r"init_communicator", locals="world_size device"
    ),
    LibraryFunction(
        r"trl/experimental/async_grpo/vllm_client\.py",
        r"wait_for_server_ready",
        frozenset([Role.ASKS_SERVER]),
        locals="poll_interval_s",
    ),
    # verl 0.9.1: a group of workers is Ray's actors, an engine is a server that it starts
    LibraryFunction(
        r"verl/single_controller/ray/base\.py",
        r"get_placement_groups|_init_with_\w+|_create_worker|execute_\w+|_get_master_addr_port",
        locals="method_name strategy name rank local_rank pg_idx world_size bundle_index",
    ),
    LibraryFunction(
        r"verl/workers/rollout/sglang_rollout/http_server_engine\.py",
        r"launch_server_process",
        frozenset([Role.ASKS_SERVER]),
        locals="base_url",
        limit="max_wait_time",
    ),
    # OpenRLHF 0.11.2
    LibraryFunction(
        r"openrlhf/trainer/ray/launcher\.py",
        r"_initiate_actors",
        locals="world_size rank master_addr master_port",
    ),
    LibraryFunction(
        r"openrlhf/trainer/ray/vllm_engine\.py",
        r"create_vllm_engines|batch_vllm_engine_call",
        locals="num_engines tensor_parallel_size i method_name",
    ),
    LibraryFunction(
        r"openrlhf/utils/deepspeed/deepspeed\.py", r"setup_distributed", limit="timeout"
    ),
    # TensorRT-LLM, by its repository (tensorrt_llm/executor/proxy.py, rpc_proxy.py, worker.py), for
    # no wheel could be had: workers of mpi4py's pool, which say over ZeroMQ that they are ready.
    LibraryFunction(
        r"tensorrt_llm/executor/proxy\.py",
        r"_start_executor_workers",
        frozenset([Role.AWAITS_WORKERS]),
    ),
    LibraryFunction(
        r"tensorrt_llm/executor/rpc_proxy\.py",
        r"setup_engine_remote",
        frozenset([Role.AWAITS_WORKERS]),
    ),
    LibraryFunction(
        r"tensorrt_llm/_torch/pyexecutor/py_executor\.py",
        r"wait_shutdown",
        frozenset([Role.SERVES_REQUESTS]),
    ),
    LibraryFunction(r"mpi4py/futures/\w+\.py", r"bootup|submit|shutdown", locals="n_workers"),
    # What compiles beside its caller: torch 2.13's pool of workers
    LibraryFunction(
        r"torch/_inductor/(?:async_compile|compile_worker/subproc_pool)\.py",
        r"wait|_wait_futures|wait_pool_ready|result",
        frozenset([Role.AWAITS_WORKERS]),
    ),
)
