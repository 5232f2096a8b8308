"""What it means that a function of a library stands on a stack: the one place to add another.

A row names functions by the end of their file's path and by their own name, and says what they do
and which of their local variables tell something. `bisect/evidence` and `bisect/diagnosis` ask by
role. Any number of rows may match a function. The public name of a call is in
diagnosis/process/public_calls.py, the steps of users' scripts are in rank/watched/known_calls.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache

from .engine_functions import ENGINE_FUNCTIONS
from .library_roles import LibraryFunction as LibraryFunction
from .library_roles import Role as Role
from .process_facts import Frame

_C10D = r"torch/distributed/distributed_c10d\.py"
_MAKING_GROUPS = (
    r"init_process_group|_new_process_group_helper|_?new_group\w*|split_group|_store_based_barrier"
    r"|_new_subgroups\w*|new_subgroups\w*"
)
_RPC = r"torch/distributed/rpc/api\.py"
_TRANSFERS = r"(?:i?send|i?recv|broadcast|reduce|gather|scatter)\w*"
BUILD_LOCK = "the lock file of a torch extension build"

# The wrapper around each function of torch.distributed, and what evidence/stacks.py makes of its
# arguments, which may hold anything: whether a group was among them, as its local `group`.
C10D_WRAPPER = "torch/distributed/c10d_logger.py"
GROUP_GIVEN = "given"
GROUP_NOT_GIVEN = "None"

# filelock of one file (3.0) and the copy in datasets are alike; later ones ask in a function apart,
# and have it in a folder of their own since 4.3 (filelock/_core/_acquire.py).
_FILELOCK = r"(?:filelock(?:/\w+){0,2}|datasets/utils/_filelock)\.py"
_FILELOCK_PATHS = ("lock_filename", "canonical_path")
_FILELOCK_LOCALS = "self timeout poll_interval poll_intervall start_time wait"
_CPP_EXTENSION = r"torch/utils/cpp_extension\.py"

# Threads that poll without a pause as long as their library is in use, on a core in a dead job as
# well, by their own names: those of TensorPipe that are a BusyPollingLoop (torch.distributed.rpc;
# tensorpipe/transport/shm/reactor.cc and ibv/reactor.cc, setThreadName).
POLLING_THREADS = frozenset({"TP_SHM_reactor", "TP_IBV_reactor"})

# Threads of Python that serve a library alone, by the names that it gives them: they hear from its
# own servers as long as the process lives, and no step waits for them (ray/_private/worker.py and
# gc_collect_manager.py: errors and output of workers, garbage collection; distributed/utils.py and
# profile.py of Dask: the loop by which its processes are in touch, what is sampled of threads).
SERVICE_THREADS = frozenset(
    {"ray_listen_error_messages", "ray_print_logs", "PythonGCThread", "IO loop", "Profile"}
)

FUNCTIONS = (
    # locks on files
    LibraryFunction(
        _FILELOCK,
        r"acquire|_poll_until_acquired",
        frozenset([Role.POLLS_LOCK]),
        path_locals=_FILELOCK_PATHS,
        locals=_FILELOCK_LOCALS,
    ),
    LibraryFunction(_FILELOCK, r"_acquire", path_locals=_FILELOCK_PATHS, locals=_FILELOCK_LOCALS),
    LibraryFunction(
        r"huggingface_hub/utils/_fixes\.py",
        r"WeakFileLock",
        frozenset([Role.ASKS_AGAIN]),
        path_locals=("lock_file",),
        locals="timeout",
    ),
    LibraryFunction(
        r"transformers/trainer\.py",
        r"_run_epoch|_inner_training_loop",
        frozenset([Role.GOES_ROUND_STEPS]),
    ),
    LibraryFunction(
        r"huggingface_hub/(?:file_download|_snapshot_download)\.py",
        r"\w+",
        path_locals=("lock_path",),
    ),
    # These two keep the file open while they ask: the kernel knows which it is.
    LibraryFunction(
        r"portalocker/(?:utils|portalocker)\.py", r"acquire|lock", frozenset([Role.POLLS_LOCK])
    ),
    LibraryFunction(
        r"fasteners/process_lock\.py", r"_?acquire|_do_acquire", frozenset([Role.POLLS_LOCK])
    ),
    # builds of torch extensions: that the file is there is the lock
    LibraryFunction(
        r"torch/utils/file_baton\.py",
        r"wait",
        frozenset([Role.POLLS_LOCK, Role.AWAITS_BUILD]),
        lock=BUILD_LOCK,
    ),
    LibraryFunction(
        _CPP_EXTENSION,
        r"_jit_compile|_run_ninja_build|_write_ninja_file_and_build_library"
        r"|_import_module_from_library",
        locals="name module_name build_directory path",
    ),
    LibraryFunction(
        _CPP_EXTENSION, r"_jit_compile", path_locals=("build_directory",), path_below="lock"
    ),
    LibraryFunction(
        _CPP_EXTENSION,
        r"_run_ninja_build|_write_ninja_file_and_build_library|_build_extension\w*",
        frozenset([Role.BUILDS_EXTENSION]),
    ),
    # torch.distributed: who waits for whom, where and for how long
    LibraryFunction(
        r"torch/distributed/rendezvous\.py",
        r"_create_c10d_store|_(?:env|tcp|file)_rendezvous_handler|rendezvous|_rendezvous_helper",
        locals="hostname port master_addr master_port url path rank world_size world_size_opt "
        "timeout use_libuv",
    ),
    LibraryFunction(
        _C10D,
        r"init_process_group|_new_process_group_helper",
        locals="backend init_method group_name group_rank rank group_size world_size "
        "global_ranks_in_group timeout",
    ),
    LibraryFunction(
        _C10D,
        r"new_group|_new_group_with_tag|split_group",
        locals="group_name ranks split_ranks global_rank backend group_desc timeout",
    ),
    LibraryFunction(
        _C10D,
        r"_store_based_barrier",
        locals="store_key group_name rank worker_count world_size timeout",
    ),
    LibraryFunction(_C10D, _TRANSFERS, locals="src dst group_src group_dst tag"),
    LibraryFunction(
        _C10D, r"(?:monitored_)?barrier", locals="wait_all_ranks device_ids", limit="timeout"
    ),
    LibraryFunction(
        r"torch/distributed/elastic/agent/server/api\.py",
        r"_rendezvous",
        frozenset([Role.MEETS_NODES]),
    ),
    LibraryFunction(
        r"torch/distributed/elastic/agent/server/api\.py",
        r"_invoke_run",
        frozenset([Role.WATCHES_RANKS]),
    ),
    LibraryFunction(
        r"torch/distributed/elastic/rendezvous/c10d_rendezvous_backend\.py",
        r"_create_tcp_store",
        frozenset([Role.MEETS_NODES]),
    ),
    # Processes of JAX: the coordinator is in that of the first.
    LibraryFunction(
        r"jax/_src/distributed\.py",
        r"initialize",
        frozenset([Role.MAKES_GROUP]),
        locals="process_id num_processes coordinator_address",
        limit="initialization_timeout",
    ),
    LibraryFunction(
        r"jax/experimental/multihost_utils\.py", r"\w+", frozenset([Role.RUNS_COLLECTIVE])
    ),
    LibraryFunction(
        r"torch/distributed/elastic/utils/store\.py",
        r"\w*barrier\w*|synchronize|get_all|_try_detecting_missing_ranks",
        locals="key_prefix prefix rank world_size num_members",
        limit="timeout barrier_timeout",
    ),
    LibraryFunction(
        r"lightning[_/]fabric/utilities/distributed\.py",
        r"_init_dist_connection",
        locals="cluster_environment torch_distributed_backend global_rank world_size",
    ),
    LibraryFunction(
        r"deepspeed/comm/comm\.py",
        r"init_distributed",
        locals="dist_backend init_method rank world_size timeout",
    ),
    # functions that one rank has another run
    LibraryFunction(
        _RPC, r"rpc_sync", frozenset([Role.CALLS_WORKER]), locals="to func", limit="timeout"
    ),
    LibraryFunction(
        _RPC,
        r"_all_gather",
        frozenset([Role.LEAVES_WORKERS, Role.MEETS_WORKERS]),
        locals="self_name leader_name timeout",
    ),
    LibraryFunction(_RPC, r"shutdown", frozenset([Role.MEETS_WORKERS])),  # in C++ at the end
    LibraryFunction(
        r"torch/distributed/rpc/internal\.py", r"_run_function", frozenset([Role.SERVES_WORKER])
    ),
    *ENGINE_FUNCTIONS,
    # what starts a rank: its number, where no environment tells it
    LibraryFunction(
        r"torch/multiprocessing/spawn\.py", r"_wrap|start_processes|spawn", locals="i nprocs"
    ),
    LibraryFunction(
        r"torch/distributed/elastic/multiprocessing/api\.py", r"_wrap", locals="local_rank"
    ),
    LibraryFunction(
        r"strategies/launchers/multiprocessing\.py", r"_wrapping_function", locals="process_idx"
    ),
    LibraryFunction(r"accelerate/utils/launch\.py", r"__call__", locals="index"),
    # hub, network
    LibraryFunction(
        r"huggingface_hub/(?:file_download|_snapshot_download)\.py",
        r"\w+",
        locals="repo_id repo_type filename revision url endpoint lock_path local_files_only "
        "etag_timeout timeout expected_size resume_size",
    ),
    LibraryFunction(
        r"huggingface_hub/utils/_http\.py",
        r"\w*backoff\w*",
        locals="method url nb_tries max_retries",
    ),
    LibraryFunction(
        r"transformers/utils/hub\.py",
        r"cached_files?",
        locals="path_or_repo_id filename filenames full_filenames revision",
    ),
    LibraryFunction(
        r"huggingface_hub/hf_api\.py", r"\w+", locals="repo_id repo_type revision path timeout"
    ),
    LibraryFunction(
        r"transformers/(?:models/auto/)?\w+\.py",
        r"from_pretrained",
        locals="pretrained_model_name_or_path revision",
    ),
    LibraryFunction(r"urllib/request\.py", r"urlopen|open", locals="url fullurl timeout"),
    LibraryFunction(
        r"requests/(?:api|sessions|adapters)\.py",
        r"request|get|post|send",
        locals="method url timeout",
    ),
    LibraryFunction(
        r"urllib3/(?:connectionpool|util/connection)\.py",
        r"urlopen|_make_request|create_connection",
        locals="method url address timeout",
    ),
    LibraryFunction(
        r"httpx2?/_client\.py", r"request|stream|get|post|head", locals="method url timeout"
    ),
    LibraryFunction(
        r"httpcore2?/_backends/\w+\.py", r"connect_tcp|read|write", locals="host port timeout"
    ),
    LibraryFunction(
        r"http/client\.py",
        r"begin|getresponse|_read_status",
        frozenset([Role.AWAITS_ANSWER, Role.ASKS_BY_HTTP]),
    ),
    LibraryFunction(
        r"httpcore2?/_sync/http11\.py",
        r"_receive_response_headers|_receive_event",
        frozenset([Role.AWAITS_ANSWER, Role.ASKS_BY_HTTP]),
    ),
    LibraryFunction(
        r"socket\.py",
        r"create_connection|getaddrinfo|getfqdn",
        locals="address host port name timeout",
    ),
    # W&B
    LibraryFunction(r"wandb/sdk/wandb_init\.py", r"init", locals="timeout project entity mode"),
    LibraryFunction(r"wandb/sdk/wandb_login\.py", r"_?login", locals="host timeout relogin"),
    # other processes, data
    LibraryFunction(
        r"subprocess\.py",
        r"run|call|check_call|check_output|__init__|_execute_child|communicate|_?wait",
        locals="popenargs args cwd timeout",
    ),
    # what is given up after the time that it was given
    LibraryFunction(
        r"(?:threading|queue|concurrent/futures/_base|multiproc?ess(?:ing)?/\w+|subprocess|socket"
        r"|requests/\w+|urllib3/\S+|urllib/request|httpcore2?/_backends/\w+|fsspec/asyn"
        r"|wandb/sdk/(?:mailbox/\w+|lib/service/service_port_file))\.py",
        r"join|_?wait\w*|get|put|result|exception|acquire|_?poll\w*|communicate|re(?:quest|ad)|post"
        r"|send|urlopen|open|create_connection|connect_tcp|write|sync",
        limit="timeout",
    ),
    LibraryFunction(
        r"torch/utils/data/dataloader\.py",
        r"_try_get_data|_get_data|__init__",
        locals="timeout i success",
    ),
    LibraryFunction(r"torch/utils/data/dataloader\.py", r"_get_data", frozenset([Role.ASKS_AGAIN])),
    LibraryFunction(
        r"torch/utils/data/_utils/(?:worker|fetch)\.py",
        r"_worker_loop|fetch",
        locals="worker_id num_workers idx index possibly_batched_index",
    ),
    LibraryFunction(
        r"datasets/(?:arrow_dataset|dataset_dict)\.py",
        r"map|_map_single|filter",
        locals="num_proc rank batch_size cache_file_name desc",
    ),
    LibraryFunction(
        r"datasets/(?:load|builder)\.py",
        r"load_dataset|_prepare_split\w*",
        locals="path name data_dir split num_proc job_id fpath",
    ),
    # imports that wait for one another
    LibraryFunction(r"importlib\._bootstrap", r"_find_and_load|_lock_unlock_module", locals="name"),
    # process groups
    LibraryFunction(r"torch/distributed/rendezvous\.py", r".*", frozenset([Role.MAKES_GROUP])),
    LibraryFunction(_C10D, _MAKING_GROUPS, frozenset([Role.MAKES_GROUP])),
    LibraryFunction(
        r"torch/distributed/rpc/backend_registry\.py",
        r"_init_process_group|_tensorpipe_init_backend_handler",
        frozenset([Role.MAKES_GROUP]),
    ),
    LibraryFunction(
        _C10D,
        # All others but those that ask no other rank.
        rf"(?!(?:{_MAKING_GROUPS}|is_\w+|get_\w+|_get_\w+|_rank_not_in_group|_check_\w+)$).*",
        frozenset([Role.RUNS_COLLECTIVE]),
    ),
    LibraryFunction(
        r"torch/distributed/elastic/utils/store\.py", r".*", frozenset([Role.ASKS_STORE])
    ),
    LibraryFunction(
        r"torch/nn/parallel/distributed\.py|torch/distributed/fsdp/.*\.py"
        r"|torch/distributed/.*collectives?.*\.py",
        r"\w+",
        frozenset([Role.MAY_RUN_COLLECTIVE]),
    ),
    LibraryFunction(
        r"torch/distributed/utils\.py",
        r"_(?:sync|verify)_\w+",
        frozenset([Role.MAY_RUN_COLLECTIVE]),
    ),
    LibraryFunction(
        r"(?:lightning_)?fabric/utilities/distributed\.py",
        r"__call__|__exit__",  # of _InfiniteBarrier
        frozenset([Role.MAY_RUN_COLLECTIVE]),
    ),
    # Work.wait(), of an operation that was handed out, has no frame of Python.
    LibraryFunction(
        r"torch/distributed/(?:pipelining/schedules|optim/zero_redundancy_optimizer)\.py",
        r"_wait_batch_p2p|wait_for_broadcasts|_sync_params|<listcomp>",
        frozenset([Role.MAY_RUN_COLLECTIVE]),
    ),
    LibraryFunction(
        r"multiproc?ess(?:ing)?/managers\.py",
        r"__enter__|acquire",
        frozenset([Role.TAKES_MANAGED_LOCK]),
    ),
    LibraryFunction(
        r"urllib3/connectionpool\.py", r"_get_conn", frozenset([Role.TAKES_CONNECTION])
    ),
    LibraryFunction(
        r"httpcore/_a?sync/connection_pool\.py",
        r"wait_for_connection",
        frozenset([Role.TAKES_CONNECTION]),
    ),
    LibraryFunction(r"sqlalchemy/pool/impl\.py", r"_do_get", frozenset([Role.TAKES_CONNECTION])),
    LibraryFunction(
        r"psycopg_pool/pool(?:_async)?\.py",
        r"getconn|_getconn_unchecked",
        frozenset([Role.TAKES_CONNECTION]),
    ),
    LibraryFunction(r"redis/connection\.py", r"get_connection", frozenset([Role.TAKES_CONNECTION])),
    LibraryFunction(
        r"deepspeed/utils/nvtx\.py", r"wrapped_fn", frozenset([Role.MAY_RUN_COLLECTIVE])
    ),
    LibraryFunction(
        r"deepspeed/(?:comm/torch|runtime/pipe/\w+|runtime/zero/partition_parameters)\.py",
        r"wait|_exec_commit_p2p|_allgather_params_coalesced|_reduce_scatter_gradients",
        frozenset([Role.MAY_RUN_COLLECTIVE]),
    ),
    LibraryFunction(
        r"torch/autograd/graph\.py", r"_engine_run_backward", frozenset([Role.MAY_RUN_COLLECTIVE])
    ),
    # waits for workers
    LibraryFunction(
        r"torch/utils/data/dataloader\.py",
        r"_try_get_data|_get_data|_shutdown_workers|__next__",
        frozenset([Role.AWAITS_WORKERS]),
    ),
    LibraryFunction(
        r"multiproc?ess(?:ing)?/pool\.py",
        r"get|wait|next|join|map|starmap|apply",
        frozenset([Role.AWAITS_WORKERS]),
    ),
    LibraryFunction(
        r"multiproc?ess(?:ing)?/pool\.py",
        r"_handle_workers|_maintain_pool|_repopulate_pool\w*",
        frozenset([Role.STARTS_WORKERS]),
    ),
    LibraryFunction(
        r"datasets/utils/py_utils\.py", r"iflatmap_unordered", frozenset([Role.AWAITS_WORKERS])
    ),
    LibraryFunction(r"concurrent/futures/process\.py", r"\w+", frozenset([Role.AWAITS_WORKERS])),
    LibraryFunction(
        r"joblib/parallel\.py", r"_retrieve|retrieve|__call__", frozenset([Role.AWAITS_WORKERS])
    ),
    LibraryFunction(
        r"torch/(?:cuda|xpu|accelerator)/(?:__init__|streams)\.py",
        r"synchronize",
        frozenset([Role.AWAITS_GPU]),
    ),
    # handlers of signals whose names do not tell that they are some
    LibraryFunction(
        r"(?:hang)?bisect/rank/messages\.py", r"_interrupted", frozenset([Role.HANDLES_SIGNAL])
    ),
    LibraryFunction(
        r"trainer/connectors/signal_connector\.py",
        r"__call__",
        frozenset([Role.HANDLES_SIGNAL]),
    ),
    LibraryFunction(
        r"torch/utils/data/_utils/signal_handling\.py",
        r"handler",
        frozenset([Role.HANDLES_SIGNAL]),
    ),
)


@cache
def _compile_patterns() -> tuple[tuple[re.Pattern[str], re.Pattern[str], LibraryFunction], ...]:
    """Return each row with the patterns of its name and its file. When first asked: 10 ms."""
    return tuple(
        (re.compile(row.name), re.compile(rf"(?:^|[/ ])(?:{row.file})>?$"), row)
        for row in FUNCTIONS
    )


@lru_cache(maxsize=1 << 16)  # ranks share their frames: a thousand of them have few different ones
def find_library_functions(file: str, name: str) -> tuple[LibraryFunction, ...]:
    """Return the rows that a function matches."""
    own = name.rpartition(".")[2]
    return tuple(row for n, f, row in _compile_patterns() if n.fullmatch(own) and f.search(file))


@lru_cache(maxsize=1 << 16)
def has_role(file: str, name: str, role: Role) -> bool:
    """Return True if a function has a role."""
    return any(role in row.roles for row in find_library_functions(file, name))


def find_role(frames: Iterable[Frame], role: Role) -> Frame | None:
    """Return the first of `frames` whose function has a role."""
    return next((f for f in frames if not f.native and has_role(f.file, f.name, role)), None)


_LIBRARY_FILE = re.compile(
    r"/(?:site|dist)-packages/|/(?:lib|lib64)/python\d+(?:\.\d+)?/|^<frozen "
)


def is_library_file(file: str) -> bool:
    """Return True for a file of an installed package or of the standard library."""
    return _LIBRARY_FILE.search(file) is not None


def parse_text(value: str) -> str:
    """Return the text in a local's value as py-spy words it, "" if it is none, or was cut short."""
    if len(value) < 2 or value[0] not in "'\"" or value[-1] != value[0]:
        return ""
    text = value[1:-1]
    return "" if text.endswith("...") else text
