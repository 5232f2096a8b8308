"""GPUs and their driver: from native frames and what NVML says."""

from __future__ import annotations

import re

from ...facts import Gpu, Look
from ..frames import worded
from .known import Found, KnownCause, also, need, unless
from .scene import Scene, find_frame
from .signs import ended_with, meets_its_peers, native_in, native_name

# Names as in public stacks: NVIDIA/nccl#901 and #117 (waits for the stream), pytorch/pytorch#95944
# (a copy that waits), rwth-i6/returnn#1756 (is_available).
_NCCL_RUNS = (
    r"\b(?:nccl(?:AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|Send|Recv|GroupEnd)"
    r"|ncclProxy\w+|WorkNCCL::\w+|ProcessGroupNCCL::\w+)\b"
)
_SYNCHRONIZES = (
    r"\b(?:cu(?:da)?(?:Stream|Device|Event|Ctx)Synchronize\w*|cuda(?:Memcpy|MemcpyAsync)"
    r"|cuMemcpy\w*|cudaStreamWaitEvent|_local_scalar_dense_cuda|copy_kernel_cuda"
    r"|CUDAEvent::synchronize|WorkNCCL::synchronize\w*|hip(?:Stream|Device|Event)Synchronize)\b"
)
_DRIVER = (
    r"\b(?:cuInit|cuDeviceGet\w*|cuDevicePrimaryCtxRetain|cuCtxCreate\w*|cuDriverGetVersion"
    r"|cudaGetDevice(?:Count|Properties)\w*|cudaSetDevice|cudaFree|nvml(?:Init|Device)\w*"
    r"|hipInit|hipGetDeviceCount|hsa_init|THCPModule_\w+|getDeviceCount\w*)\b"
)
_PYTHON_DRIVER = r"_lazy_init|init|is_available|device_count|_device_count_nvml|_raw_device_\w+"
_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri")
_BUSY = 0.95  # of a GPU's time


def gpus_of_the_job(scene: Scene) -> tuple[Gpu, ...]:
    """Return the GPUs that processes of the job use, all if that is not known."""
    gpus = scene.job.machine.gpus
    used = tuple(g for g in gpus if set(g.pids) & scene.job_pids)
    return used or gpus


# ---- signs ---------------------------------------------------------------------------------------

waits_for_gpu = native_in(_SYNCHRONIZES, "A rank waits for its GPU (cudaStreamSynchronize, ...)")
in_nccl = native_in(_NCCL_RUNS, "A rank is in an operation of NCCL")


def _gpu_works(scene: Scene) -> Found | None:
    """NVML shows the GPU busy."""
    for gpu in gpus_of_the_job(scene):
        if gpu.busy is not None and gpu.busy >= _BUSY:
            return Found(f"GPU {gpu.index} is busy {gpu.busy:.0%} of the time")
    return None


def _asks_the_driver(scene: Scene) -> Found | None:
    """A rank starts CUDA, or asks the driver for its GPUs (torch.cuda.is_available, an ioctl on
    /dev/nvidia...).
    """
    frame = scene.frame(r"torch/cuda/__init__\.py", _PYTHON_DRIVER)
    if frame is not None and scene.python and scene.python[0] == frame:
        return Found(f"frame {worded(frame)}")
    for native in scene.frames:
        if native.native and re.search(_DRIVER, native.name):
            return Found(f"native frame {native_name(native)}")
        if not native.native:
            break
    return _asks_a_device(scene)


def _asks_a_device(scene: Scene) -> Found | None:
    """Return the device of a GPU that its system call is about."""
    call = scene.view.call if scene.view is not None else None
    paths = [d.path for d in (call.descriptors if call else ())]
    device = next((p for p in paths if p.startswith(_DEVICES)), "")
    return Found(f"{scene.call} on {device}", {"device": device}) if device else None


def _in_the_kernel_driver(scene: Scene) -> Found | None:
    """It is in a call of the driver that does not end (ioctl on /dev/nvidia..., or state D)."""
    view = scene.view
    if view is None:
        return None
    device = _asks_a_device(scene)
    if device is not None:
        return device
    if view.state == "D" or "nv" in view.wchan.split("_")[0]:
        return Found(f"state {view.state}, {view.wchan or scene.call}")
    return None


def _nvml_is_silent(scene: Scene) -> Found | None:
    """NVML does not answer either."""
    told = [m for m in scene.job.machine.missing if "NVML" in m or "nvidia" in m.lower()]
    return Found("NVML does not answer") if told and not scene.job.machine.gpus else None


def _child_in_cuda(scene: Scene) -> Found | None:
    """A forked worker stands in CUDA."""
    for look in scene.children:
        main = look.main
        frames = main.frames if main else ()
        native = next(
            (f for f in frames if f.native and re.search(rf"{_DRIVER}|{_SYNCHRONIZES}", f.name)),
            None,
        )
        python = find_frame(frames, r"torch/cuda/(?:__init__|\w+)\.py")
        if _is_forked(look) and (native or python):
            where = native_name(native) if native else worded(python) if python else ""
            return Found(f"worker {look.pid} stands in {where}", {"worker": look.pid})
    return None


def _is_forked(look: Look) -> bool:
    main = look.main
    frames = main.frames if main else ()
    by_fork = find_frame(frames, r"multiprocessing/popen_fork\.py")
    return look.name.startswith("pt_data_worker") or by_fork is not None


def _parent_has_cuda(scene: Scene) -> Found | None:
    """Its parent had used CUDA before."""
    subject = scene.subject
    if subject is None:
        return None
    gpus = [g.index for g in scene.job.machine.gpus if subject.pid in g.pids]
    return Found(f"rank {subject.rank} uses GPU {gpus[0]}") if gpus else None


_forked_crash = ended_with(
    r"Cannot re-initialize CUDA in forked subprocess|CUDA error: initialization error"
    r"|Lightning can.t create new processes if CUDA is already initialized",
    "It ended because CUDA was in use before a fork",
)


def _cuda_and_fork(scene: Scene) -> Found | None:
    """A forked worker stands in CUDA, or ended because CUDA was in use before the fork."""
    return _forked_crash(scene) or _child_in_cuda(scene)


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="gpu-busy",
        title="a rank waits for its own GPU: a kernel does not end",
        signs=(
            need(waits_for_gpu, 0.5),
            also(_gpu_works, 0.4),
            unless(meets_its_peers),
            unless(in_nccl),
        ),
        why="The rank waits until its GPU has done what was queued; an earlier kernel runs on, or "
        "waits for something itself.",
        avoid=(
            "CUDA_LAUNCH_BLOCKING=1 shows which call started it: all GPU work becomes slower",
            "`nvidia-smi` and `dmesg | grep -i xid` say whether the GPU is in order",
        ),
        references=("pytorch/pytorch#95944", "NVIDIA/nccl#1063"),
    ),
    KnownCause(
        id="driver-stuck",
        title="the GPU driver does not answer",
        signs=(
            need(_asks_the_driver, 0.5),
            also(_in_the_kernel_driver, 0.6),
            also(_nvml_is_silent, 0.4),
            unless(_child_in_cuda),
        ),
        why="Starting CUDA is a call into the driver; it does not come back, and cannot be "
        "interrupted.",
        avoid=(
            "`dmesg | grep -i -e xid -e nvrm` and `nvidia-smi` on this machine; take it out of the "
            "job (drain the node), restart it",
            "CUDA_VISIBLE_DEVICES without the GPU in question",
        ),
        references=(
            "rwth-i6/returnn#1756",
            "NVIDIA/k8s-device-plugin#227",
            "pytorch/pytorch#52145",
        ),
    ),
    KnownCause(
        id="cuda-before-fork",
        title="CUDA was in use before a process was forked",
        signs=(need(_cuda_and_fork, 0.65), also(_parent_has_cuda, 0.5), also(_forked_crash, 0.9)),
        why="A forked process has the parent's CUDA without its threads: it cannot use the GPU, "
        "and waits or fails as soon as it tries.",
        avoid=(
            "no torch.cuda call, and no model on the GPU, before workers or ranks are forked",
            "workers by forkserver (needs a main guard): seconds more at the start",
            "tensors to the GPU in the rank, never in a worker of a DataLoader",
        ),
        toggles=(("num_workers", "0"), ("worker_start", "forkserver")),
        references=("Lightning-AI/pytorch-lightning#18728", "pytorch/pytorch#116276"),
        outcomes=("hang", "interrupted", "crash"),
    ),
)
