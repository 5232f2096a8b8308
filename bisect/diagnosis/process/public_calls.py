"""The public names of calls of libraries (`wandb.init`): the one place to add another.

A stack shows private names (`_WandbInit.init`), and often several public ones. Each row gives the
end of a file's path (with or without ".py"), the function as the last part of its qualified name,
the dotted name that users write ("": only the component), the component it belongs to (None: the
step's own), and whether it is `telling`: a telling call says more than whatever encloses it, so
the innermost telling one is the answer; the others only give the outermost library function its
public name.

Also here: which of these calls wait for the other ranks inside torch.distributed, and which
ranks build a torch extension (torch/utils/cpp_extension.py, and the compilers below it: their names
are in base/compilers.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import takewhile
from typing import Literal

from ...base.addresses import host_of, is_loopback, port_of
from ...base.compilers import name_compiler
from ...base.identity import RankId
from ...base.lazy_dataclass import dataclass
from ...base.library_functions import BUILD_LOCK, Role, find_role, has_role
from ...base.process_facts import Frame, Thread
from ...base.rank_facts import RankFacts
from ...base.verdict_facts import Wait
from .blocked_syscalls import PEER_WAIT_CALLS
from .frames import format_frame, frame_owner, keep_by_stack, unqualified_name
from .process_snapshot import ProcessSnapshot, keep_in_view, merge_looks
from .spin_waits import find_mpi_call


@dataclass(frozen=True)
class EntryPoint:
    """A function of a library, and the public name of the call that it is."""

    file: str  # a regular expression, matched at the end of the file's path
    function: str  # a regular expression, matched whole against the unqualified name
    call: str  # {name}: the function's own, {class}: the one it is a method of
    component: str | None = None
    telling: bool = False
    collective: bool = False
    # What a process does that has no code of the job's own on its stack, as in a server.
    stage: bool = False
    container: bool = False  # runs code of the job, and that is inside more often than not
    meets: bool = (
        False  # waits for all workers by a telling call, which says less than its own name
    )

    def matches(self, frame: Frame) -> bool:
        """Return whether a frame is of this function."""
        return bool(
            re.fullmatch(self.function, unqualified_name(frame.name))
            and re.search(rf"(?:^|[/ ]){self.file}>?$", frame.file)
        )

    def named(self, frame: Frame) -> str:
        """Return the call's public name, as this frame has it."""
        owner = frame.name.rpartition(".")[0].rpartition(".")[2]
        owner = _PUBLIC_CLASSES.get(owner, owner)
        return self.call.format(name=unqualified_name(frame.name), **{"class": owner or "object"})


# Classes that people call by the name of one that derives from them.
_PUBLIC_CLASSES = {"_BaseAutoModelClass": "AutoModel"}
_LIGHTNING = r"(?:pytorch_lightning|lightning/pytorch)"
_FABRIC = r"(?:lightning_fabric|lightning/fabric)"
_C10D_PATTERN = r"torch/distributed/distributed_c10d\.py"
_COLLECTIVE = (
    r"(?:monitored_)?barrier|(?:all_)?reduce\w*|(?:all_)?gather\w*|all_to_all\w*|scatter\w*"
    r"|broadcast\w*|reduce_scatter\w*|i?send\w*|i?recv\w*|batch_isend_irecv"
)

ENTRY_POINTS = (
    # wandb
    EntryPoint(r"wandb/sdk/wandb_init\.py", "init", "wandb.init", "wandb", telling=True),
    EntryPoint(r"wandb/sdk/wandb_login\.py", "_?login", "wandb.login", "wandb", telling=True),
    EntryPoint(r"wandb/sdk/wandb_run\.py", "finish", "wandb.finish", "wandb", telling=True),
    EntryPoint(r"wandb/sdk/wandb_run\.py", "_?log", "wandb.log", "wandb", telling=True),
    EntryPoint(r"wandb/sdk/wandb_setup\.py", "_?setup", "wandb.setup", "wandb", telling=False),
    EntryPoint(r"wandb/sdk/\S+\.py", r"teardown\w*", "wandb.teardown", "wandb", telling=True),
    EntryPoint(
        rf"{_LIGHTNING}/loggers/wandb\.py",
        "__init__|experiment",
        f"pytorch_lightning.loggers.{'{class}'}",
        "wandb",
    ),
    # the hub
    EntryPoint(
        r"transformers/models/auto/(?:tokenization_auto|auto_factory|configuration_auto"
        r"|processing_auto)\.py",
        "from_pretrained",
        "transformers.{class}.from_pretrained",
        telling=True,
    ),
    EntryPoint(
        r"transformers/(?:modeling_utils|tokenization_utils\w*|configuration_utils"
        r"|generation/configuration_utils)\.py",
        "from_pretrained",
        "transformers.{class}.from_pretrained",
    ),
    EntryPoint(
        r"transformers/generation/utils\.py",
        "generate",
        "transformers.{class}.generate",
        "generation",
    ),
    EntryPoint(
        r"huggingface_hub/file_download\.py", "hf_hub_download", "huggingface_hub.{name}", "hub"
    ),
    EntryPoint(r"huggingface_hub/_snapshot_download\.py", r"\w+", "huggingface_hub.{name}", "hub"),
    EntryPoint(r"huggingface_hub/hf_api\.py", r"\w+", "huggingface_hub.HfApi.{name}", "hub"),
    EntryPoint(r"datasets/load\.py", "load_dataset", "datasets.load_dataset", "data"),
    # torch.distributed
    EntryPoint(
        _C10D_PATTERN, "init_process_group", "torch.distributed.{name}", "strategy", telling=True
    ),
    EntryPoint(
        _C10D_PATTERN, "new_group|split_group", "torch.distributed.{name}", "strategy", telling=True
    ),
    EntryPoint(
        _C10D_PATTERN, "destroy_process_group", "torch.distributed.{name}", "strategy", telling=True
    ),
    EntryPoint(
        _C10D_PATTERN, _COLLECTIVE, "torch.distributed.{name}", "strategy", True, collective=True
    ),
    EntryPoint(
        r"torch/distributed/rpc/(?:__init__|api)\.py",
        "init_rpc|shutdown",
        "torch.distributed.rpc.{name}",
        "strategy",
    ),
    EntryPoint(
        r"torch/nn/parallel/distributed\.py",
        "__init__",
        "torch.nn.parallel.DistributedDataParallel",
        "strategy",
        telling=True,
    ),
    EntryPoint(  # it broadcasts the buffers before it calls the module
        r"torch/nn/parallel/distributed\.py",
        "_sync_buffers",
        "torch.nn.parallel.DistributedDataParallel.forward",
        "strategy",
        telling=True,
    ),
    EntryPoint(
        r"torch/distributed/fsdp/fully_sharded_data_parallel\.py",
        "__init__",
        "torch.distributed.fsdp.FullyShardedDataParallel",
        "strategy",
        telling=True,
    ),
    EntryPoint(
        rf"{_FABRIC}/utilities/distributed\.py",
        "__call__|__exit__",  # of _InfiniteBarrier
        "torch.distributed.barrier",
        "strategy",
        telling=True,
        collective=True,
    ),
    # Ray
    EntryPoint(r"ray/_private/worker\.py", "init|get|wait", "ray.{name}", "launcher", telling=True),
    EntryPoint(
        r"ray/util/placement_group\.py", "wait", "PlacementGroup.wait", "launcher", telling=True
    ),
    # Each of these waits until every worker has called it, and waits by ray.get.
    EntryPoint(
        r"ray/train/v2/_internal/execution/context\.py",
        "_sync_checkpoint_dir_name_across_ranks",
        "ray.train.report",
        "strategy",
        meets=True,
    ),
    EntryPoint(
        r"ray/train/v2/_internal/execution/collective_impl\.py",
        "barrier|broadcast_from_rank_zero",
        "ray.train.collective.{name}",
        "strategy",
        meets=True,
    ),
    EntryPoint(
        r"ray/train/\S+_trainer\.py",
        "fit",
        "ray.train.torch.{class}.fit",
        "launcher",
        container=True,
    ),
    # inference servers, where one process of them waits for others
    EntryPoint(
        r"vllm/v1/engine/utils\.py",
        "wait_for_engine_startup",
        "vllm.v1.engine.utils.{name}",
        "launcher",
        telling=True,
    ),
    EntryPoint(
        r"vllm/v1/worker/\w+_worker\.py",
        r"init_device|load_\w+|determine_available_memory|compile_or_warm_up_model",
        "vllm.v1.worker.{class}.{name}",
        stage=True,
    ),
    EntryPoint(
        r"vllm/v1/executor/multiproc_executor\.py",
        "wait_for_ready|collective_rpc|worker_busy_loop",
        "vllm.v1.executor.{class}.{name}",
        stage=True,
    ),
    EntryPoint(
        r"vllm/\S*/shm_broadcast\.py", "wait_until_ready", "vllm.{class}.{name}", stage=True
    ),
    EntryPoint(
        r"sglang/srt/(?:model_executor/model_runner|managers/scheduler)\.py",
        r"init_torch_distributed|load_\w+|event_loop\w*",
        "sglang.srt.{class}.{name}",
        stage=True,
    ),
    EntryPoint(
        r"sglang/srt/entrypoints/engine\.py",
        r"_wait_for_scheduler_ready|_?launch_subprocesses",
        "sglang.srt.entrypoints.engine.{name}",
        "launcher",
        telling=True,
    ),
    EntryPoint(
        r"sglang/srt/utils/\w+\.py",
        "wait_port_available",
        "sglang.srt.utils.{name}",
        "launcher",
        telling=True,
    ),
    EntryPoint(
        r"trl/(?:extras|generation|experimental/async_grpo)/vllm_client\.py",
        "check_server|wait_for_server_ready",
        "trl.VLLMClient.{name}",
        "launcher",
        telling=True,
    ),
    EntryPoint(
        r"trl/(?:extras|generation)/vllm_client\.py",
        r"init_communicator|update_named_params|update_model_params|generate|chat",
        "trl.VLLMClient.{name}",
        "strategy",
        telling=True,
    ),
    EntryPoint(
        r"vllm/distributed/utils\.py",
        r"create|broadcast_obj|recv_obj|all_gather_obj|barrier",
        "vllm.{class}.{name}",
        "strategy",
        stage=True,
    ),
    EntryPoint(
        r"verl/(?:single_controller/ray|checkpoint_engine)/base\.py",
        r"get_placement_groups|execute_(?:all|rank_zero)\w*|build_process_group|update_weights",
        "verl.{class}.{name}",
        "launcher",
        telling=True,
        meets=True,
    ),
    EntryPoint(
        r"verl/workers/rollout/sglang_rollout/http_server_engine\.py",
        "launch_server_process",
        "verl.{name}",
        "launcher",
        telling=True,
    ),
    EntryPoint(
        r"openrlhf/trainer/ray/\w+\.py",
        r"_init_vllm_sync_group|broadcast_to_vllm|create_vllm_engines|_initiate_actors",
        "openrlhf.{name}",
        "strategy",
        telling=True,
        meets=True,
    ),
    EntryPoint(
        r"openrlhf/trainer/ray/vllm_worker_wrap\.py",
        r"init_process_group|update_weight\w*",
        "openrlhf.{class}.{name}",
        "strategy",
        stage=True,
    ),
    EntryPoint(
        r"tensorrt_llm/executor/(?:rpc_)?proxy\.py",
        r"_start_executor_workers|setup_engine_remote|submit",
        "tensorrt_llm.executor.{class}.{name}",
        "launcher",
        telling=True,
    ),
    # Lightning
    EntryPoint(
        rf"{_LIGHTNING}/trainer/trainer\.py", "__init__", "pytorch_lightning.Trainer", "trainer"
    ),
    EntryPoint(
        rf"{_LIGHTNING}/trainer/trainer\.py",
        "fit|validate|test|predict",
        "pytorch_lightning.Trainer.{name}",
        container=True,
    ),
    EntryPoint(rf"{_LIGHTNING}/trainer/call\.py", r"_call_callback\w*", "", "callbacks"),
    EntryPoint(rf"{_LIGHTNING}/trainer/connectors/data_connector\.py", "prepare_data", "", "data"),
    EntryPoint(rf"{_LIGHTNING}/trainer/call\.py", "_call_lightning_datamodule_hook", "", "data"),
    # torch
    EntryPoint(
        r"torch/utils/data/dataloader\.py",
        "__next__|__iter__",
        "torch.utils.data.DataLoader.{name}",
        "data",
        telling=True,
    ),
    EntryPoint(
        r"torch/utils/cpp_extension\.py",
        "load|load_inline",
        "torch.utils.cpp_extension.{name}",
        telling=True,
    ),
    EntryPoint(
        r"torch/cuda/__init__\.py",
        r"_lazy_init|init|is_available|device_count|set_device|current_device|synchronize|get_device_\w+",
        "torch.cuda.{name}",
        "accelerator",
    ),
    # the standard library and small ones
    EntryPoint(r"subprocess\.py", "run|call|check_call|check_output", "subprocess.{name}"),
    EntryPoint(r"subprocess\.py", "wait|communicate|__init__", "subprocess.Popen.{name}"),
    EntryPoint(r"os(?:\.py)?", "makedirs|walk|fwalk|removedirs|renames", "os.{name}"),
    EntryPoint(r"shutil\.py", r"\w+", "shutil.{name}"),
    EntryPoint(r"threading\.py", "join", "threading.Thread.join"),
    EntryPoint(r"threading\.py", "wait", "threading.{class}.wait"),
    EntryPoint(r"threading\.py", "_shutdown", "threading._shutdown"),
    EntryPoint(r"queue\.py", "get|put|join", "queue.Queue.{name}"),
    EntryPoint(r"socket\.py", "readinto", "socket.socket.recv"),
    EntryPoint(r"multiprocessing/process\.py", "join|start", "multiprocessing.Process.{name}"),
    EntryPoint(r"multiprocessing/pool\.py", "map|apply|get|join", "multiprocessing.Pool.{name}"),
    EntryPoint(r"multiprocessing/queues\.py", "get|put", "multiprocessing.Queue.{name}"),
    EntryPoint(
        r"multiprocessing/queues\.py",
        "_finalize_join|join_thread",
        "multiprocessing.Queue.join_thread",
        telling=True,
    ),
    EntryPoint(r"concurrent/futures/_base\.py", "result", "concurrent.futures.Future.result"),
    EntryPoint(
        r"concurrent/futures/_base\.py", "result_iterator", "concurrent.futures.Executor.map"
    ),
    EntryPoint(
        r"concurrent/futures/process\.py",
        "_chain_from_iterable_of_lists",
        "concurrent.futures.ProcessPoolExecutor.map",
    ),
    EntryPoint(r"asyncio/runners\.py", "run", "asyncio.run"),
    EntryPoint(r"urllib/request\.py", "urlopen", "urllib.request.urlopen"),
    EntryPoint(r"requests/api\.py", r"\w+", "requests.{name}"),
    EntryPoint(r"httpx2?/_api\.py", r"\w+", "httpx.{name}"),
    EntryPoint(r"filelock/\S+\.py", "acquire|__enter__", "filelock.FileLock.acquire"),
)


def find_entry_points(frame: Frame) -> tuple[EntryPoint, ...]:
    """Return the rows that `frame` matches."""
    return _match_rows(frame.file, frame.name)


@lru_cache(maxsize=1 << 14)  # ranks share their frames: a thousand of them have few different ones
def _match_rows(file: str, name: str) -> tuple[EntryPoint, ...]:
    frame = Frame(name, file, 0)
    return tuple(entry for entry in ENTRY_POINTS if entry.matches(frame))


# construction: a process group (or its store) is being made, for which all ranks must come.
# collective: a group exists, and its members meet. store: a key that somebody is to set.
GroupWait = Literal["construction", "collective", "store"]

# Through its frames torch calls operators that are written in C++ (OpOverload.__call__): who calls
# them tells what is waited for.
_OPERATORS = re.compile(r"(?:^|/)torch/_ops\.py$")
# How the threads of a process group are called (ProcessGroupGloo.cpp, ProcessGroupNCCL.cpp).
_GROUP_THREADS = ("pt_gloo", "pt_nccl")
# Functions of torch's own code for several ranks, by the names that native frames have: any of it,
# remote calls too; what asks a store; what meets other ranks, in libraries below it as well.
NATIVE_DISTRIBUTED = re.compile(r"(?:c10d|gloo|tensorpipe|torch::distributed)::")
_NATIVE_STORE = re.compile(r"c10d::(?:\w*Store|detail::)|\bTCPStore\b")
_JOINS_A_THREAD = re.compile(r"\bstd::thread::join\b|\bpthread_\w*join\w*")
_NATIVE_MEETING = re.compile(  # the last two: shm.cpp of vllm and of deepspeed for CPUs, which spin
    r"\bgloo::|\bnccl|c10d::(?:ProcessGroup|Work|Reducer|Backend)|\bP?MPI_|get_curr_stamp$"
    r"|\bwait_buffer_state_until"
)


@keep_in_view
def find_group_wait(view: ProcessSnapshot) -> GroupWait | None:
    """Return in which way the process waits for its peers, None if it does not.

    Judged by the innermost Python frame (or who calls one of torch's operators), and by native
    frames where there are any: code of the job that is called from inside a collective does not
    wait for peers itself.
    """
    if view.state in ("D", "T", "t", "Z"):
        return None
    python = next((f for f in view.frames if not f.native and not _OPERATORS.search(f.file)), None)
    if python is None or awaits_server_of_store(view):
        return None
    native = _group_wait_by_native(view)
    by_frame = _group_wait_by_frame(python, view)
    if by_frame == "construction" or native is None:
        return by_frame or ("store" if _asks_own_server(python, view) else None)
    return native


def awaits_server_of_store(view: ProcessSnapshot) -> bool:
    """Return whether a process waits for what rank 0 of a small group puts into the store that it
    serves itself: for that process alone, at the other end of the connection.
    """
    frame = next((one for one in view.frames if not one.native), None)
    if frame is None or not has_role(frame.file, frame.name, Role.AWAITS_SOURCE):
        return False
    connected = [one.socket for one in (view.call.descriptors if view.call else ())]
    is_known = any(one is not None and one.peer_pids for one in connected)
    return is_known and dict(frame.locals).get("src") == "0"


def _asks_own_server(frame: Frame, view: ProcessSnapshot) -> bool:
    """Return whether the job's own code has called a native function, of which no frame could be
    read, that asks a server in this very process which other machines reach: a store of ranks.
    """
    if view.running or view.call is None or any(f.native for f in view.frames):
        return False
    asked = [one.socket for one in view.call.descriptors]
    if not asked or frame_owner(frame, "") != "user":
        return False
    served = {
        port_of(one.local)
        for one in view.look.sockets
        if one.state == "LISTEN" and not is_loopback(host_of(one.local))
    }
    return all(
        one is not None
        and one.state == "ESTABLISHED"
        and {*one.peer_pids} == {view.look.pid}
        and port_of(one.peer) in served
        for one in asked
    )


def _group_wait_by_frame(frame: Frame, view: ProcessSnapshot) -> GroupWait | None:
    waits: tuple[tuple[Role, GroupWait], ...] = (
        (Role.MAKES_GROUP, "construction"),
        (Role.ASKS_STORE, "store"),
        (Role.RUNS_COLLECTIVE, "collective"),
    )
    for role, kind in waits:
        if has_role(frame.file, frame.name, role):
            return kind
    if frame.file.endswith("torch/distributed/c10d_logger.py"):
        inner = next((e for f in view.frames for e in find_entry_points(f) if e.collective), None)
        return "collective" if inner else None
    if view.running or view.call_name not in PEER_WAIT_CALLS:
        return None  # it computes, or is blocked in something else
    if has_role(frame.file, frame.name, Role.MAY_RUN_COLLECTIVE) or _is_at_a_handle(frame, view):
        return "collective"
    return None


def _is_at_a_handle(frame: Frame, view: ProcessSnapshot) -> bool:
    """Return whether the job's own line waits for the handle of an operation: Work.wait() is a
    method of C++ without a frame, in a process whose group has threads of its own. What else is
    called `wait` has a frame of Python's (threading, subprocess, multiprocessing).
    """
    if any(one.native for one in view.frames) or frame_owner(frame, "") != "user":
        return False
    # Who waits for an operation sleeps until a thread of the group wakes it; a store is heard.
    awaited = view.call.descriptors if view.call is not None else ()
    if any(one.socket is not None and one.socket.peer for one in awaited):
        return False
    waits = any(name.rpartition(".")[2] == "wait" for name in frame.calls)
    return waits and any(task.comm.startswith(_GROUP_THREADS) for task in view.look.kernel)


def _group_wait_by_native(view: ProcessSnapshot) -> GroupWait | None:
    """Return what the native frames inside the innermost Python frame tell.

    Who joins a thread with the GIL waits for that thread, as where the last work of a group that is
    destroyed has an object of Python's (~ProcessGroupGloo): not for other ranks.
    """
    for frame in view.frames:
        if not frame.native or (view.holds_gil and _JOINS_A_THREAD.search(frame.name)):
            return None
        if _NATIVE_STORE.search(frame.name):
            return "store"
        if _NATIVE_MEETING.search(frame.name):
            return "collective"
    return None


def find_thread_in_collective(view: ProcessSnapshot) -> Thread | None:
    """Return the first thread besides the main one that waits in a collective: its innermost Python
    frame is one, or calls one by native frames (Work.wait()), and it does not run.
    """
    for thread in view.threads:
        inner = next((f for f in thread.frames if not f.native), None)
        if thread is view.main or thread.active or inner is None:
            continue
        native = takewhile(lambda frame: frame.native, thread.frames)
        if has_role(inner.file, inner.name, Role.RUNS_COLLECTIVE) or any(
            _NATIVE_MEETING.search(one.name) for one in native
        ):
            return thread
    return None


@keep_by_stack
def find_group_call(frames: tuple[Frame, ...]) -> str:
    """Return the short name of the distributed call on a stack ("all_reduce"), or ""; that of MPI,
    where native frames tell it.
    """
    for frame in frames:
        found = next((e for e in find_entry_points(frame) if e.component == "strategy"), None)
        if found is not None:
            return found.named(frame).rpartition(".")[2]
    return find_mpi_call(frames)


def describe_build(facts: RankFacts) -> str:
    """Return by what it is seen that a rank builds: a compiler below it, or its own frame; "" if it
    does not.
    """
    for looks in facts.children:
        last = looks[-1] if looks else None
        if last and last.state not in "ZX" and name_compiler(last.name, last.command):
            return f"{last.name} ({last.pid})"
    view = merge_looks(facts.looks)
    frame = find_role(view.frames, Role.BUILDS_EXTENSION) if view else None
    return format_frame(frame) if frame else ""


def waits_for_unknown_builder(wait: Wait | None) -> bool:
    """Return whether a rank waits for a build of which no look tells who has its lock: stacks
    without local variables name no file, and on a busy machine the search for who has it open comes
    too late. A file that really is nobody's is told once nobody builds.
    """
    return wait is not None and wait.kind == "lock" and wait.detail == BUILD_LOCK


def find_builders(ranks: Iterable[RankFacts]) -> list[RankId]:
    """Return the living ranks that build."""
    return [one.rank for one in ranks if one.alive and describe_build(one)]
