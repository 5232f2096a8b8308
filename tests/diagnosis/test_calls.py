"""The dotted call, the innermost frame, the component."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.process_facts import Frame, Look
from hangbisect.diagnosis.call_site import find_call, find_component
from hangbisect.diagnosis.process.frames import format_innermost_frame, job_frames
from hangbisect.diagnosis.process.process_snapshot import merge_looks

from .made_up import ALL_REDUCE, GROUP, PACKAGE, RECV, SLEEP, TABLE, WANDB, job, look, rank, stack

HUB = look(
    "SyncStream.read SP/httpcore/_backends/sync.py:128",
    "HfApi.model_info SP/huggingface_hub/hf_api.py:3214",
    "AutoTokenizer.from_pretrained SP/transformers/models/auto/tokenization_auto.py:763",
    "tokenizer OURS/pipelines/model_steps.py:7",
    call="recvfrom",
)
MODEL = look(
    "HfApi.model_info SP/huggingface_hub/hf_api.py:3214",
    "_BaseAutoModelClass.from_pretrained SP/transformers/models/auto/auto_factory.py:309",
    "<module> train.py:7",
    call="recvfrom",
)
RPC = look(
    "Event.wait STD/threading.py:629",
    "_all_gather SP/torch/distributed/rpc/api.py:257",
    "_wait_all_workers SP/torch/distributed/rpc/api.py:320",
    "shutdown SP/torch/distributed/rpc/api.py:382",
    "<module> train.py:7",
)
IN_FIT = (
    "_call_callback_hooks SP/pytorch_lightning/trainer/call.py:228",
    "Trainer._run SP/pytorch_lightning/trainer/trainer.py:1057",
    "Trainer.fit SP/pytorch_lightning/trainer/trainer.py:584",
    "training OURS/pipelines/training_step.py:10",
)
CALLBACK = look("Mine.on_fit_start train.py:7", *IN_FIT, call="clock_nanosleep")
CALLBACK_MEETS = look(
    "barrier SP/torch/distributed/distributed_c10d.py:5356",
    "_exception_logger.<locals>.wrapper SP/torch/distributed/c10d_logger.py:83",
    "Mine.on_fit_start train.py:7",
    *IN_FIT,
)
DECORATED = look(
    "SyncStream.read SP/httpcore/_backends/sync.py:128",
    "hf_hub_download SP/huggingface_hub/file_download.py:860",
    "validate_hf_hub_args.<locals>._inner_fn SP/huggingface_hub/utils/_validators.py:88",
    "<module> train.py:7",
    call="recvfrom",
)
PROXY = look(
    "BaseProxy._callmethod SP/multiprocess/managers.py:822",
    "get <string>:2",
    "iflatmap_unordered SP/acme/utils.py:610",
    "Dataset.map SP/acme/data.py:3627",
    "<module> <string>:7",
    call="read",
)
DDP = "SP/torch/nn/parallel/distributed.py"
BUFFERS = look(
    f"DistributedDataParallel._distributed_broadcast_coalesced {DDP}:2363",
    f"DistributedDataParallel._sync_buffers {DDP}:2425",
    f"DistributedDataParallel._pre_forward {DDP}:1782",
    f"DistributedDataParallel.forward {DDP}:1886",
    "Module._call_impl SP/torch/nn/modules/module.py:1789",
    "forward train.py:26",
)
IN_ACTOR = ("run_method SP/ray/_private/worker.py:99",)
TRL = look(
    "Socket.readinto STD/socket.py:706",
    "post SP/requests/api.py:134",
    "VLLMClient.init_communicator SP/trl/generation/vllm_client.py:760",
    "VLLMGeneration._init_vllm SP/trl/generation/vllm_generation.py:309",
    "<module> train.py:7",
    call="recvfrom",
)
VERL = look(
    "get SP/ray/_private/worker.py:2800",
    "RayResourcePool.get_placement_groups SP/verl/single_controller/ray/base.py:160",
    "RayWorkerGroup._init_with_resource_pool SP/verl/single_controller/ray/base.py:555",
    "<module> train.py:7",
    call="epoll_wait",
)
OPENRLHF = look(
    "PyNcclCommunicator._init_comm SP/vllm/distributed/device_communicators/pynccl.py:180",
    "stateless_init_process_group SP/openrlhf/utils/distributed_util.py:27",
    "WorkerWrap.init_process_group SP/openrlhf/trainer/ray/vllm_worker_wrap.py:20",
    *IN_ACTOR,
)
TENSORRT = look(
    "poll SP/tensorrt_llm/executor/ipc.py:99",
    "GenerationExecutorProxy._start_executor_workers SP/tensorrt_llm/executor/proxy.py:330",
    "<module> serve.py:7",
    call="poll",
)
UNKNOWN_LIBRARY = look("low SP/acme/io.py:1", "Client.open SP/acme/api.py:2", "step train.py:3")
NVIDIA_SMI = look(
    "Popen.communicate STD/subprocess.py:1209",
    "run STD/subprocess.py:550",
    "accelerator OURS/pipelines/model_steps.py:7",
    call="poll",
)
MAKEDIRS = look("makedirs <frozen os>:225", "logs OURS/pipelines/script_steps.py:7", call="mkdir")


def call_of(seen_there: Look, announced: str = "") -> str:
    """The call that one look shows."""
    view = merge_looks((seen_there,))
    assert view is not None
    return find_call(view, job(), announced)


@pytest.mark.parametrize(
    ("seen_there", "call", "component"),
    [
        (WANDB, "wandb.init", "wandb"),
        (HUB, "transformers.AutoTokenizer.from_pretrained", "hub"),
        (MODEL, "transformers.AutoModel.from_pretrained", "hub"),
        (GROUP, "torch.distributed.init_process_group", "strategy"),
        (ALL_REDUCE, "torch.distributed.all_reduce", "strategy"),
        (RPC, "torch.distributed.rpc.shutdown", "strategy"),
        (RECV, "requests.get", "fit"),
        (BUFFERS, "torch.nn.parallel.DistributedDataParallel.forward", "strategy"),
        (CALLBACK, "pytorch_lightning.Trainer.fit", "callbacks"),
        (CALLBACK_MEETS, "torch.distributed.barrier", "callbacks"),
        (DECORATED, "huggingface_hub.hf_hub_download", "hub"),
        (PROXY, "acme.data.Dataset.map", "fit"),
        (TRL, "trl.VLLMClient.init_communicator", "strategy"),
        (VERL, "verl.RayResourcePool.get_placement_groups", "launcher"),
        (OPENRLHF, "openrlhf.WorkerWrap.init_process_group", "strategy"),
        (
            TENSORRT,
            "tensorrt_llm.executor.GenerationExecutorProxy._start_executor_workers",
            "launcher",
        ),
        (UNKNOWN_LIBRARY, "acme.api.Client.open", "fit"),
        (NVIDIA_SMI, "subprocess.run", "fit"),
        (MAKEDIRS, "os.makedirs", "fit"),
        (SLEEP, "time.sleep", "fit"),
    ],
)
def test_call_and_component_follow_the_stack(seen_there: Look, call: str, component: str) -> None:
    assert call_of(seen_there) == call
    facts = rank(0, seen_there, reached=11)
    assert find_component(merge_looks(facts.looks), facts, job(), TABLE[12]) == component


def test_a_step_that_blocks_in_c_is_in_the_call_that_it_announced() -> None:
    direct = look("model OURS/pipelines/model_steps.py:7", call="read")
    assert call_of(direct, "torch.load") == "torch.load"


def test_a_native_call_that_keeps_the_gil_is_no_python_sleep() -> None:
    holds = look("make train.py:5", call="clock_nanosleep", gil=True)
    assert call_of(holds) == "train.make"


def test_without_a_stack_the_announced_call_or_the_system_call_stands_in() -> None:
    bare = look(call="recvfrom", rung="proc")
    assert call_of(bare, "wandb.init") == "wandb.init"
    assert call_of(bare) == "recvfrom"


def test_the_component_is_the_phases_where_the_call_says_nothing() -> None:
    facts = rank(0, SLEEP, reached=11, phase="first_batch")
    assert find_component(merge_looks(facts.looks), facts, job(), TABLE[12]) == "data"


def test_the_frame_is_the_innermost_of_python() -> None:
    native = Frame("gloo::waitRecv", "libtorch_cpu.so", 0, native=True)
    inner = Frame("Condition.wait", "/usr/lib/python3.11/threading.py", 327)
    assert format_innermost_frame([native, inner]) == "Condition.wait (threading.py:327)"
    assert format_innermost_frame([native]) == ""


def test_what_hangs_on_purpose_belongs_to_its_place_and_not_to_who_called_it() -> None:
    injected = look(
        "_sleep OURS/rank/injections.py:91",
        "inject OURS/rank/walk.py:137",
        "on_train_batch_start OURS/pipelines/fit_phases.py:9",
        *IN_FIT,
        "walk OURS/rank/walk.py:80",
        call="clock_nanosleep",
    )
    facts = rank(0, injected, reached=11, phase="first_batch")
    assert find_component(merge_looks(facts.looks), facts, job(), TABLE[12]) == "data"


@pytest.mark.parametrize(
    "ours",
    [
        "with_both OURS/rank/function_patching.py:274",
        "record OURS/rank/collective_log.py:90",
        "Steps.begin OURS/rank/watched/steps.py:120",
        "changed OURS/rank/call_changes.py:60",
        "wait <frozen importlib._bootstrap> hangbisect:3",
    ],
)
def test_a_frame_of_ours_between_a_caller_and_its_library_is_none_of_the_job(ours: str) -> None:
    frames = stack("wait SP/torch/futures/__init__.py:84", ours, "<module> train.py:7")
    assert [one.name for one in job_frames(frames, PACKAGE)] == ["wait", "<module>"]


@pytest.mark.parametrize(
    ("library", "expected"),
    [
        ("", "socket.socket.recv"),
        ("/opt/conda/bin/python3.11", "socket.socket.recv"),
        ("/usr/lib/python3.11/lib-dynload/_socket.cpython-311.so", "socket.socket.recv"),
        ("/usr/lib/x86_64-linux-gnu/libmpi.so.40", "train.start"),
    ],
)
def test_a_system_call_of_a_library_of_c_is_no_method_of_a_socket(
    library: str, expected: str
) -> None:
    one = look("start train.py:7", "<module> train.py:9", call="recvfrom")
    call = one.kernel[0].syscall
    assert call is not None
    kernel = (replace(one.kernel[0], syscall=replace(call, caller=library)),)
    view = merge_looks((replace(one, kernel=kernel),))
    assert view is not None
    assert find_call(view, job(), "") == expected


@pytest.mark.parametrize(
    ("frames", "called"),
    [
        (
            ("_chain_from_iterable_of_lists STD/concurrent/futures/process.py:620",),
            "concurrent.futures.ProcessPoolExecutor.map",
        ),
        (
            ("Executor.map.<locals>.result_iterator STD/concurrent/futures/_base.py:619",),
            "concurrent.futures.Executor.map",
        ),
    ],
)
def test_who_takes_the_results_of_a_pool_is_in_its_map(
    frames: tuple[str, ...], called: str
) -> None:
    """They are given by generators, which run where the job takes from them."""
    waits = (
        "Condition.wait STD/threading.py:327",
        "Future.result STD/concurrent/futures/_base.py:451",
    )
    view = merge_looks([look(*waits, *frames, "main train.py:31")])
    assert view is not None
    assert find_call(view, job(), "") == called


def test_what_starts_a_child_of_multiprocessing_is_no_code_of_the_job() -> None:
    starts = (
        "Process.run STD/multiprocessing/process.py:108",
        "BaseProcess._bootstrap STD/multiprocessing/process.py:314",
        "_main STD/multiprocessing/spawn.py:135",
        "spawn_main STD/multiprocessing/spawn.py:122",
        "<module> <string>:1",
    )
    worker = stack("warmup SP/engine/worker.py:9", "main SP/engine/worker.py:3", *starts)
    assert [frame.name for frame in job_frames(worker, "")] == ["warmup", "main"]
    # It may be the start itself that hangs; and `python -c` is code of the job.
    alone = stack(*starts)
    assert job_frames(alone, "") == alone
    typed = stack("get STD/queue.py:171", "<module> <string>:1")
    assert job_frames(typed, "") == typed


def with_calls(one: Look, *calls: str) -> Look:
    """The same look; what the innermost line calls, as its source has it, is known."""
    (thread,) = one.threads
    first = replace(thread.frames[0], calls=calls)
    return replace(one, threads=(replace(thread, frames=(first, *thread.frames[1:])),))


@pytest.mark.parametrize(
    ("call", "calls", "named"),
    [
        ("read", ("one.stdout.readline",), "one.stdout.readline"),
        ("read", ("os.read",), "os.read"),
        ("read", ("print", "stream.read"), "stream.read"),
        ("read", ("input",), "input"),
        ("write", ("stream.write", "len"), "stream.write"),
        ("write", ("print",), "print"),
        ("read", ("a.read", "b.read"), "train.vocabulary"),  # which of the two is not known
        ("read", ("vocabulary_of",), "train.vocabulary"),  # something that reads inside
        ("read", (), "os.read"),  # no source
        ("clock_nanosleep", ("pause",), "time.sleep"),
    ],
)
def test_what_reads_is_called_as_the_source_has_it(
    call: str, calls: tuple[str, ...], named: str
) -> None:
    """A file, a pipe and a terminal are read by many functions of C, none of which has a frame."""
    assert call_of(with_calls(look("vocabulary train.py:15", call=call), *calls)) == named


def asleep_in(library: str, *calls: str) -> Look:
    """A rank in a function of C of that library, which sleeps."""
    one = with_calls(look("index train.py:45", call="clock_nanosleep"), *calls)
    (thread,) = one.threads
    inside = (
        Frame("nanosleep", "/usr/lib/libc.so.6", 0, native=True),
        Frame("wait", library, 0, native=True),
    )
    return replace(one, threads=(replace(thread, frames=(*inside, *thread.frames)),))


def test_a_library_that_sleeps_is_called_as_the_source_has_it() -> None:
    """SQLite, which waits for a lock, is no time.sleep."""
    sqlite, python = "/usr/lib/libsqlite3.so.0.8.6", "/usr/lib/libpython3.11.so.1.0"
    assert call_of(asleep_in(sqlite, "base.execute")) == "base.execute"
    assert call_of(asleep_in(sqlite, "base.execute", "len")) == "train.index"
    assert call_of(asleep_in(python, "pause")) == "time.sleep"


def test_what_torch_has_around_each_module_is_not_the_call() -> None:
    """A hook of DeepSpeed's, before the forward of a module that the job's own forward calls."""
    seen_there = look(
        "instrument_w_nvtx.<locals>.wrapped_fn SP/deepspeed/utils/nvtx.py:33",
        "AllGatherCoalescedHandle.wait SP/deepspeed/runtime/zero/partition_parameters.py:765",
        "Offload._pre_forward_module_hook SP/deepspeed/runtime/zero/parameter_offload.py:360",
        "DisableContext.__call__.<locals>._fn SP/torch/_dynamo/eval_frame.py:1446",
        "Module._call_impl.<locals>.inner SP/torch/nn/modules/module.py:1821",
        "Module._wrapped_call_impl SP/torch/nn/modules/module.py:1778",
        "Reader.forward train.py:32",
    )
    assert call_of(seen_there).endswith("Offload._pre_forward_module_hook")
    assert format_innermost_frame(seen_there.threads[0].frames) == (
        "AllGatherCoalescedHandle.wait (partition_parameters.py:765)"
    )
