"""Local variables of an allowlist of frames: the one place to add another.

py-spy reads them all; what no row names is forgotten at once. It words them its own way: text in
double quotes (up to 4096 bytes, of which it shows some 380), lists cut short with "...", objects
as `<Class at 0x...>`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..facts import Frame
from ..rank.masking import mask_command, mask_text

MOST_CHARACTERS = 400


@dataclass(frozen=True)
class Row:
    """Locals to keep. No row may name what holds a secret: values are masked as text is."""

    file: str  # a regular expression for the end of the path
    function: str  # one for the whole of the unqualified name
    names: str  # of the locals, the telling ones first


_C10D = r"torch/distributed/distributed_c10d\.py"
_TRANSFERS = r"(?:i?send|i?recv|broadcast|reduce|gather|scatter)\w*"

TABLE = (
    # torch.distributed: who waits for whom, where and for how long
    Row(
        r"torch/distributed/rendezvous\.py",
        r"_create_c10d_store|_(?:env|tcp|file)_rendezvous_handler|rendezvous|_rendezvous_helper",
        "hostname port master_addr master_port url path rank world_size world_size_opt timeout "
        "use_libuv",
    ),
    Row(
        _C10D,
        r"init_process_group|_new_process_group_helper",
        "backend init_method group_name group_rank rank group_size world_size "
        "global_ranks_in_group timeout",
    ),
    Row(
        _C10D,
        r"new_group|_new_group_with_tag|split_group",
        "group_name ranks split_ranks global_rank backend group_desc timeout",
    ),
    Row(
        _C10D,
        r"_store_based_barrier",
        "store_key group_name rank worker_count world_size timeout",
    ),
    Row(_C10D, _TRANSFERS, "src dst group_src group_dst tag"),
    Row(_C10D, r"(?:monitored_)?barrier", "timeout wait_all_ranks device_ids"),
    Row(
        r"torch/distributed/elastic/utils/store\.py",
        r"\w*barrier\w*|synchronize|get_all|_try_detecting_missing_ranks",
        "key_prefix prefix rank world_size num_members timeout barrier_timeout",
    ),
    Row(
        r"lightning[_/]fabric/utilities/distributed\.py",
        r"_init_dist_connection",
        "torch_distributed_backend global_rank world_size",
    ),
    Row(
        r"deepspeed/comm/comm\.py",
        r"init_distributed",
        "dist_backend init_method rank world_size timeout",
    ),
    # what starts a rank: its number, where no environment tells it
    Row(r"torch/multiprocessing/spawn\.py", r"_wrap|start_processes|spawn", "i nprocs"),
    Row(r"torch/distributed/elastic/multiprocessing/api\.py", r"_wrap", "local_rank"),
    Row(r"strategies/launchers/multiprocessing\.py", r"_wrapping_function", "process_idx"),
    Row(r"accelerate/utils/launch\.py", r"__call__", "index"),
    # builds and locks
    Row(
        r"torch/utils/cpp_extension\.py",
        r"_jit_compile|_run_ninja_build|_write_ninja_file_and_build_library"
        r"|_import_module_from_library",
        "name module_name build_directory path",
    ),
    Row(
        r"(?:filelock/\w+|datasets/utils/_?filelock)\.py",
        r"acquire|_poll_until_acquired|_acquire",
        "lock_filename canonical_path self timeout poll_interval poll_intervall",
    ),
    Row(r"huggingface_hub/utils/_fixes\.py", r"WeakFileLock", "lock_file timeout"),
    # hub, network
    Row(
        r"huggingface_hub/(?:file_download|_snapshot_download)\.py",
        r"\w+",
        "repo_id repo_type filename revision url endpoint lock_path local_files_only "
        "etag_timeout timeout expected_size resume_size",
    ),
    Row(r"huggingface_hub/utils/_http\.py", r"\w*backoff\w*", "method url nb_tries max_retries"),
    Row(
        r"transformers/utils/hub\.py",
        r"cached_files?",
        "path_or_repo_id filename filenames full_filenames revision",
    ),
    Row(r"huggingface_hub/hf_api\.py", r"\w+", "repo_id repo_type revision path timeout"),
    Row(
        r"transformers/(?:models/auto/)?\w+\.py",
        r"from_pretrained",
        "pretrained_model_name_or_path revision",
    ),
    Row(r"urllib/request\.py", r"urlopen|open", "url fullurl timeout"),
    Row(r"requests/(?:api|sessions|adapters)\.py", r"request|get|post|send", "method url timeout"),
    Row(
        r"urllib3/(?:connectionpool|util/connection)\.py",
        r"urlopen|_make_request|create_connection",
        "method url address timeout",
    ),
    Row(r"httpx2?/_client\.py", r"request|stream|get|post|head", "method url timeout"),
    Row(r"httpcore2?/_backends/\w+\.py", r"connect_tcp|read|write", "host port timeout"),
    Row(r"socket\.py", r"create_connection|getaddrinfo|getfqdn", "address host port name timeout"),
    Row(r"fsspec/asyn\.py", r"sync", "timeout"),
    # W&B
    Row(r"wandb/sdk/wandb_init\.py", r"init", "timeout project entity mode"),
    Row(r"wandb/sdk/wandb_login\.py", r"_?login", "host timeout relogin"),
    Row(r"wandb/sdk/mailbox/\w+\.py", r"wait_\w+", "timeout"),
    Row(r"wandb/sdk/lib/service/service_port_file\.py", r"\w+", "timeout"),
    # other processes, data
    Row(
        r"subprocess\.py",
        r"run|call|check_call|check_output|__init__|_execute_child|communicate|_?wait",
        "popenargs args cwd timeout",
    ),
    Row(
        r"torch/utils/data/dataloader\.py", r"_try_get_data|_get_data|__init__", "timeout i success"
    ),
    Row(
        r"torch/utils/data/_utils/(?:worker|fetch)\.py",
        r"_worker_loop|fetch",
        "worker_id num_workers idx index possibly_batched_index",
    ),
    Row(
        r"datasets/(?:arrow_dataset|dataset_dict)\.py",
        r"map|_map_single|filter",
        "num_proc rank batch_size cache_file_name desc",
    ),
    Row(
        r"datasets/(?:load|builder)\.py",
        r"load_dataset|_prepare_split\w*",
        "path name data_dir split num_proc job_id fpath",
    ),
    # imports that wait for one another
    Row(r"<frozen importlib\._bootstrap>", r"_find_and_load|_lock_unlock_module", "name"),
)

_ROWS = tuple(
    (re.compile(rf"(?:^|/)(?:{row.file})$"), re.compile(row.function), row) for row in TABLE
)
_OBJECT = re.compile(r"<([\w.]+) at 0x[0-9a-fA-F]+>")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_COMMANDS = ("args", "popenargs")
# In the job's own functions, and whole numbers only: which rank it is, where nothing else tells.
_RANKS = ("rank", "local_rank", "world_size")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/(?:lib|lib64)/python\d+(?:\.\d+)?/|^<frozen ")


def kept(frame: Frame, found: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return of the locals of `frame`, as py-spy words them, those that a row names, masked."""
    if not found or frame.native:
        return ()
    name = frame.name.rpartition(".")[2]
    rows = [
        r for file, function, r in _ROWS if function.fullmatch(name) and file.search(frame.file)
    ]
    values = dict(found)
    if not rows and not _LIBRARY.search(frame.file):
        return tuple((n, values[n]) for n in _RANKS if values.get(n, "").isdecimal())
    wanted = dict.fromkeys(local for row in rows for local in row.names.split())
    shown = [(local, shown_value(local, values[local])) for local in wanted if local in values]
    return tuple((local, value) for local, value in shown if value)


def shown_value(name: str, value: str) -> str:
    """Return a value as it may be shown, "" where it says nothing.

    The address of an object differs from rank to rank and tells nobody anything; its class does
    where it is a method's own object.
    """
    if value in ("?", "") or (value == "None" and "timeout" not in name):
        return ""
    if found := _OBJECT.fullmatch(value):
        return f"<{found[1]}>" if name == "self" else ""
    if name in _COMMANDS:
        value = _mask_words(value)
    value = mask_text(value)
    return value if len(value) <= MOST_CHARACTERS else value[: MOST_CHARACTERS - 3] + "..."


def _mask_words(value: str) -> str:
    """Return a command, a list of words or one line for a shell, without secrets."""
    words = [found[1] for found in _QUOTED.finditer(value)]
    masked = iter([" ".join(mask_command(word.split(" "))) for word in mask_command(words)])
    return _QUOTED.sub(lambda found: f'"{next(masked)}"', value)


def text_of(value: str) -> str:
    """Return the text in a value, "" if it is none, or was cut short."""
    if len(value) < 2 or value[0] not in "'\"" or value[-1] != value[0]:
        return ""
    text = value[1:-1]
    return "" if text.endswith("...") else text
