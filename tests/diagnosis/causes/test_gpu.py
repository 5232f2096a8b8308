"""GPUs and their driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.process_facts import Descriptor, Look, Socket
from hangbisect.base.rank_facts import Gpu, MachineFacts

from ..made_up import gone, held, job, look, rank
from .scenes import TORCHRUN, Facts, Shows, causes_of, with_native

STEP = look("synchronize SP/torch/cuda/__init__.py:990", "step train.py:40", call="", state="R")
ASKS = look(
    "is_available SP/torch/cuda/__init__.py:129",
    "<module> train.py:4",
    call="ioctl",
    descriptors=(Descriptor(4, "device", "/dev/nvidia-uvm"),),
)


def machine(busy: float = 1.0, pids: tuple[int, ...] = (100,)) -> MachineFacts:
    return MachineFacts(gpus=(Gpu(0, "NVIDIA H100", busy, 640.0, 700.0, pids=pids),))


def first(one: Look, on: MachineFacts, **more: Any) -> Facts:
    return job(machine=on), [rank(0, one, environment=TORCHRUN, **more), held(1)]


def worker(*frames: str, name: str = "pt_data_worker") -> tuple[Look, ...]:
    return (look(*frames, pid=300, ppid=100, name=name, call="futex"),)


LOADER = look(
    "_try_get_data SP/torch/utils/data/dataloader.py:1283",
    "__next__ SP/torch/utils/data/dataloader.py:733",
    "<module> train.py:30",
    call="poll",
)
IN_CUDA = (
    "_lazy_init SP/torch/cuda/__init__.py:520",
    "Dataset.__getitem__ data.py:8",
    "_worker_loop SP/torch/utils/data/_utils/worker.py:349",
    "Popen._launch STD/multiprocessing/popen_fork.py:71",
)


def gpu_busy() -> Facts:
    return first(with_native(STEP, "cuCtxSynchronize", "cudaDeviceSynchronize"), machine())


def driver_stuck() -> Facts:
    return first(ASKS, MachineFacts(missing=("NVML did not answer within 1.0 s.",)))


def cuda_before_fork() -> Facts:
    return first(LOADER, machine(0.0), children=(worker(*IN_CUDA),))


MPS = Socket(9, "unix", peer="/tmp/nvidia-mps/control", state="ESTABLISHED")
IN_INIT = with_native(
    look(
        "_lazy_init SP/torch/cuda/__init__.py:520",
        "<module> train.py:4",
        call="recvmsg",
        descriptors=(Descriptor(9, "socket", "socket:[9]", socket=MPS),),
    ),
    *("libc_recvmsg", "cuDevicePrimaryCtxRetain"),
)
# The driver's words for 805 to 810 (cudaGetErrorString, driver_types.h of CUDA 12).
MPS_ERRORS = (
    "MPS client failed to connect to the MPS control daemon or the MPS server",
    "the remote procedural call between the MPS server and the MPS client failed",
    "MPS server is not ready to accept new MPS client requests",
    "the hardware resources required to create MPS client have been exhausted",
    "the hardware resources required to device connections have been exhausted",
    "the MPS client has been terminated by the server",
)


def mps_server() -> Facts:
    return first(IN_INIT, machine(0.0))


def fabric_not_ready() -> Facts:
    on = machine(0.0)
    waits = replace(on.gpus[0], fabric="in progress", pids=(100,))
    return first(ASKS, replace(on, gpus=(waits,)))


SHOWS: Shows = {
    "fabric-not-ready": fabric_not_ready,
    "mps-server": mps_server,
    "gpu-busy": gpu_busy,
    "driver-stuck": driver_stuck,
    "cuda-before-fork": cuda_before_fork,
}


@pytest.mark.parametrize("said", MPS_ERRORS)
def test_who_ended_for_want_of_the_mps_server(said: str) -> None:
    error = f"torch.AcceleratorError: CUDA error: {said}"
    found = causes_of((job("crash"), [gone(0, 1, error, left_at=95.0), held(1)]))
    assert found["mps-server"].level == "seen"


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: CUDA error: system not yet initialized",  # cudaErrorSystemNotReady
        "RuntimeError: cudaGetDeviceCount(): Error 802: system not yet initialized",
    ],
)
def test_who_ended_for_want_of_the_fabric(error: str) -> None:
    found = causes_of((job("crash"), [gone(0, 1, error, left_at=95.0), held(1)]))
    assert found["fabric-not-ready"].level == "seen"


def test_a_fabric_that_is_there_is_no_cause() -> None:
    assert "fabric-not-ready" not in causes_of(first(ASKS, machine(0.0)))


def test_a_gpu_that_is_busy_for_a_moment_only_is_no_kernel_that_never_ends() -> None:
    on = machine(1.0)
    falls = replace(on, gpus=(replace(on.gpus[0], moments=((0.03, 100.0),)),))
    found = causes_of(first(WAITS_FOR_IT, falls))["gpu-busy"]
    assert not any("busy" in fact for fact in found.matched)


def test_the_folder_of_mps_may_be_another() -> None:
    other = replace(MPS, peer="/run/mps0/control")
    call = Descriptor(9, "socket", "socket:[9]", socket=other)
    one = with_native(
        look("_lazy_init SP/torch/cuda/__init__.py:520", call="recvmsg", descriptors=(call,)),
        "cuInit",
    )
    here = TORCHRUN | {"CUDA_MPS_PIPE_DIRECTORY": "/run/mps0"}
    ranks = [rank(0, one, environment=here), held(1)]
    assert "mps-server" in causes_of((job(), ranks))
    assert "mps-server" not in causes_of(first(one, machine()))


def test_a_socket_of_another_server_is_not_that_of_mps() -> None:
    others = replace(MPS, peer="/run/user/1000/bus")
    call = Descriptor(9, "socket", "socket:[9]", socket=others)
    one = look("recv train.py:9", call="recvmsg", descriptors=(call,))
    assert "mps-server" not in causes_of(first(one, machine()))


def test_a_rank_that_waits_for_peers_does_not_wait_for_its_own_gpu() -> None:
    meets = look(
        "all_reduce SP/torch/distributed/distributed_c10d.py:3252",
        "wrapper SP/torch/distributed/c10d_logger.py:83",
        "<module> train.py:9",
    )
    one = with_native(meets, "cudaStreamSynchronize", "c10d::ProcessGroupNCCL::WorkNCCL::wait")
    ranks = [rank(n, one) for n in (0, 1)]
    assert "gpu-busy" not in causes_of((job(machine=machine()), ranks))


WAITS_FOR_IT = with_native(STEP, "cuCtxSynchronize", "cudaDeviceSynchronize")


def test_another_jobs_gpu_that_is_busy_is_not_ours() -> None:
    alone = causes_of(first(WAITS_FOR_IT, machine(pids=())))["gpu-busy"]
    others = causes_of(first(WAITS_FOR_IT, machine(pids=(4711,))))["gpu-busy"]
    assert len(others.matched) < len(alone.matched)
    assert not any("busy" in fact for fact in others.matched)


@pytest.mark.parametrize(
    ("environment", "ours"),
    [
        ({}, True),  # local rank 0
        ({"CUDA_VISIBLE_DEVICES": "0"}, True),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1f"}, True),
        ({"CUDA_VISIBLE_DEVICES": "3,0"}, False),
        ({"CUDA_VISIBLE_DEVICES": ""}, False),
    ],
)
def test_where_nobody_says_who_uses_a_gpu_it_is_that_of_the_local_rank(
    environment: dict[str, str], ours: bool
) -> None:
    hidden = Gpu(0, "NVIDIA H100", 1.0, 640.0, 700.0, host_pids=(100,), uuid="GPU-1f")
    one = rank(0, WAITS_FOR_IT, environment=TORCHRUN | environment)
    facts = (job(machine=MachineFacts(gpus=(hidden,))), [one, held(1)])
    found = causes_of(facts)["gpu-busy"]
    assert any("busy" in fact for fact in found.matched) == ours


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ("The NVIDIA driver gave no answer in time: it may itself be what hangs.", "NVML does not"),
        ("AMD's driver gave no answer in time: it may itself be what hangs.", "AMD's driver does"),
        ("NVML does not work (libnvidia-ml.so.1: cannot open): nothing is known of GPUs.", ""),
    ],
)
def test_a_driver_that_does_not_answer_is_told_from_a_library_that_is_not_there(
    missing: str, says: str
) -> None:
    matched = causes_of(first(ASKS, MachineFacts(missing=(missing,))))["driver-stuck"].matched
    assert any(says in one for one in matched) if says else len(matched) == 2


def test_one_gpu_of_the_job_that_is_silent_is_the_driver_that_does_not_answer() -> None:
    silent = Gpu(0, "", state="silent", said="the driver gave no answer (asked for memory)")
    found = causes_of(first(ASKS, MachineFacts(gpus=(silent, Gpu(7, "NVIDIA H100", 0.0)))))
    assert any("no answer" in fact for fact in found["driver-stuck"].matched)


def test_a_rank_that_has_started_cuda_long_ago_does_not_ask_the_driver() -> None:
    works = look("step train.py:9", "<module> train.py:30", call="ioctl")
    assert "driver-stuck" not in causes_of(first(works, machine()))


def test_a_worker_that_reads_files_is_not_in_cuda() -> None:
    reads = worker("Dataset.__getitem__ data.py:8", "_launch STD/multiprocessing/popen_fork.py:71")
    assert "cuda-before-fork" not in causes_of(first(LOADER, machine(0.0), children=(reads,)))


def test_a_child_with_a_program_of_its_own_may_use_cuda() -> None:
    own = worker(*IN_CUDA[:2], name="python3")
    assert "cuda-before-fork" not in causes_of(first(LOADER, machine(0.0), children=(own,)))


def test_what_torch_says_of_cuda_and_fork_is_certain() -> None:
    error = "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with ..."
    found = causes_of((job("crash"), [gone(0, 1, error, left_at=90.0), held(1)]))
    assert found["cuda-before-fork"].agreement > 0.8


def test_state_d_below_the_driver_makes_it_more_likely() -> None:
    plain = replace(ASKS, kernel=look("x train.py:1", call="ioctl").kernel)
    deep = replace(ASKS, kernel=look("x train.py:1", call="", state="D", wchan="os_acquire").kernel)
    weak = causes_of(first(plain, MachineFacts())).get("driver-stuck")
    strong = causes_of(first(replace(deep, state="D"), MachineFacts()))["driver-stuck"]
    assert weak is None or weak.agreement < strong.agreement
