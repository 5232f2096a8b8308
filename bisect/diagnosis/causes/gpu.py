"""GPUs and their driver: from native frames and what NVML says.

The family of NCCL is here too: making its communicator, and the first data between GPUs.
"""

from __future__ import annotations

import re

from ...base.process_facts import Look
from ...base.rank_facts import Gpu
from ...base.words import format_ranks
from ..gpu_owners import find_given_device, is_of_nccl
from ..process.frames import format_frame
from .known_cause import Found, KnownCause, Scene, also, find_frame, need, unless
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
    """Return the GPUs that processes of the job use; where the driver does not say who uses them,
    or in the numbers of another machine's processes, those that its ranks were given.

    Never all that there are: the others may be another job's.
    """
    gpus = scene.machine.gpus
    if any(gpu.pids for gpu in gpus):
        return tuple(g for g in gpus if set(g.pids) & scene.job_pids)
    given = {find_given_device(facts) for facts in scene.neighbours}
    return tuple(g for g in gpus if str(g.index) in given or (g.uuid and g.uuid in given))


# ---- signs ---------------------------------------------------------------------------------------

waits_for_gpu = native_in(_SYNCHRONIZES, "A rank waits for its GPU (cudaStreamSynchronize, ...)")
in_nccl = native_in(_NCCL_RUNS, "A rank is in an operation of NCCL")


def _gpu_works(scene: Scene) -> Found | None:
    """NVML shows the GPU busy."""
    for gpu in gpus_of_the_job(scene):
        if gpu.least_busy is not None and gpu.least_busy >= _BUSY:
            return Found(f"GPU {gpu.index} is busy {gpu.least_busy:.0%} of the time")
    return None


def _runs_own_kernel(scene: Scene) -> Found | None:
    """Its GPU runs a kernel of its own, and none of NCCL's (`attach --gpu-stacks`)."""
    kernels = scene.subject.gpu_kernels if scene.subject is not None else ()
    if not kernels or any(map(is_of_nccl, kernels)):
        return None
    return Found(f"its GPU runs {kernels[0]}")


def _runs_kernel_of_nccl(scene: Scene) -> Found | None:
    """Its GPU runs a kernel of NCCL's, which waits for other GPUs."""
    kernels = scene.subject.gpu_kernels if scene.subject is not None else ()
    one = next(filter(is_of_nccl, kernels), None)
    return Found(f"its GPU runs {one}") if one else None


def _asks_the_driver(scene: Scene) -> Found | None:
    """A rank starts CUDA, or asks the driver for its GPUs (torch.cuda.is_available, an ioctl on
    /dev/nvidia...).
    """
    frame = scene.frame(r"torch/cuda/__init__\.py", _PYTHON_DRIVER)
    if frame is not None and scene.python and scene.python[0] == frame:
        return Found(f"frame {format_frame(frame)}")
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
    """NVML, or AMD's driver, does not answer either."""
    silent = [gpu for gpu in gpus_of_the_job(scene) if gpu.state == "silent"]
    if silent:
        return Found(f"GPU {silent[0].index}: {silent[0].said}")
    # That there is no library of NVML, as in many containers, says nothing of the driver.
    said = next((m for m in scene.machine.missing if "driver gave no answer" in m), "")
    who = "AMD's driver" if said.startswith("AMD") else "NVML"
    return Found(f"{who} does not answer") if said and not scene.machine.gpus else None


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
            where = native_name(native) if native else format_frame(python) if python else ""
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
    gpus = [g.index for g in scene.machine.gpus if subject.pid in g.pids]
    return Found(f"rank {subject.rank} uses GPU {gpus[0]}") if gpus else None


_forked_crash = ended_with(
    r"Cannot re-initialize CUDA in forked subprocess|CUDA error: initialization error"
    r"|Lightning can.t create new processes if CUDA is already initialized",
    "It ended because CUDA was in use before a fork",
)


def _cuda_and_fork(scene: Scene) -> Found | None:
    """A forked worker stands in CUDA, or ended because CUDA was in use before the fork."""
    return _forked_crash(scene) or _child_in_cuda(scene)


# cudaErrorMps... of CUDA's driver_types.h, 805 to 810, as cudaGetErrorString has them.
_ended_without_mps = ended_with(
    r"MPS client failed to connect to the MPS|procedural call between the MPS server and the MPS"
    r"|MPS server is not ready to accept|required to create MPS client have been exhausted"
    r"|required to device connections have been exhausted"
    r"|MPS client has been terminated by the server",
    "It ended because the MPS server was not there, or had no room",
)


def _waits_for_mps(scene: Scene) -> Found | None:
    """A rank waits for an answer of the MPS server (CUDA_MPS_PIPE_DIRECTORY)."""
    folder = scene.environment.get("CUDA_MPS_PIPE_DIRECTORY", "").rstrip("/") or "/tmp/nvidia-mps"
    call = scene.view.call if scene.view is not None else None
    descriptors = call.descriptors if call else ()
    asked = [one.path for one in descriptors]
    asked += [one.socket.peer or one.socket.local for one in descriptors if one.socket is not None]
    path = next((one for one in asked if one.startswith(f"{folder}/")), "")
    return Found(f"{scene.call} at {path}", {"path": path}) if path else None


_ended_without_fabric = ended_with(
    r"system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady",
    "It ended because the GPUs were not ready as a system (error 802)",
)


def _fabric_is_not_ready(scene: Scene) -> Found | None:
    """It ended with error 802, or NVML says that its GPU is not yet part of the NVLink fabric."""
    if ended := _ended_without_fabric(scene):
        return ended
    for gpu in gpus_of_the_job(scene):
        if gpu.fabric:
            return Found(f"GPU {gpu.index}: its registration with the fabric is {gpu.fabric}")
    return None


def _without_mps(scene: Scene) -> Found | None:
    """A rank ended because the MPS server was not there or had no room, or waits for its answer."""
    return _ended_without_mps(scene) or _waits_for_mps(scene)


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="fabric-not-ready",
        title="the GPUs of a machine with NVSwitch are not yet a system: Fabric Manager",
        signs=(
            need(_fabric_is_not_ready, 0.85),
            also(_ended_without_fabric, 0.9, proves=True),
            also(_asks_the_driver, 0.3),
        ),
        why="On machines with NVSwitch CUDA starts once Fabric Manager has set up the switches; "
        "until then it fails, or waits.",
        avoid=(
            "sudo systemctl restart nvidia-fabricmanager; its version must be the driver's",
            "`nvidia-smi -q | grep -A3 Fabric` says Completed and Success for each GPU",
        ),
        references=(
            "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",
            "pytorch/pytorch#35710",
            "huggingface/huggingface_hub#4128",
        ),
        outcomes=("hang", "interrupted", "crash"),
    ),
    KnownCause(
        id="mps-server",
        title="CUDA's MPS server is gone, or does not answer",
        signs=(need(_without_mps, 0.85), also(_ended_without_mps, 0.9, proves=True)),
        why="With MPS a rank reaches its GPU by a server that all processes of a user share; where "
        "that ended or hangs, each call into CUDA waits or fails.",
        avoid=(
            "`echo get_server_list | nvidia-cuda-mps-control` says whether it answers; quit it and "
            "start it again: `echo quit | nvidia-cuda-mps-control`, `nvidia-cuda-mps-control -d`",
            "without MPS: unset CUDA_MPS_PIPE_DIRECTORY, or set it to a folder without a server",
        ),
        references=(
            "https://docs.nvidia.com/deploy/mps/index.html",
            "NVIDIA/k8s-device-plugin#679",
            "NVIDIA/nvidia-container-toolkit#714",
        ),
        outcomes=("hang", "interrupted", "crash"),
    ),
    KnownCause(
        id="gpu-busy",
        title="a rank waits for its own GPU: a kernel does not end",
        signs=(
            need(waits_for_gpu, 0.5),
            also(_gpu_works, 0.4),
            also(_runs_own_kernel, 0.9, proves=True),
            unless(_runs_kernel_of_nccl),
            unless(meets_its_peers),
            unless(in_nccl),
        ),
        why="The rank waits until its GPU has done what was queued; an earlier kernel runs on, or "
        "waits for something itself.",
        avoid=(
            "CUDA_LAUNCH_BLOCKING=1 shows which call started it: all GPU work becomes slower",
            "a core dump of the GPU on demand names the kernel (attach --gpu-stacks), where the "
            "job was started with CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1",
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
        signs=(
            need(_cuda_and_fork, 0.65),
            also(_parent_has_cuda, 0.5),
            also(_forked_crash, 0.9, proves=True),
        ),
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


# Names as in public stacks: pytorch/pytorch#52916 (bootstrap), NVIDIA/nccl#901.
_NCCL_INIT = (
    r"\b(?:ncclCommInit\w*|ncclCommSplit|bootstrap(?:Init|Net\w+|AllGather|Recv|Send)"
    r"|initTransportsRank|ncclGetUniqueId|ncclSocket(?:Connect|Accept|Ready|Wait)\w*"
    r"|NCCLComm::(?:create|split)|getNCCLComm|initNCCLComm|broadcastUniqueNCCLID)\b"
)
_BUSY_PERCENT, _LOW_SHARE = 0.95, 0.6  # of a GPU's time; of its power limit


# ---- signs ---------------------------------------------------------------------------------------

makes_nccl = native_in(_NCCL_INIT, "A rank is where NCCL makes its communicator (ncclCommInit...)")


def meets_over_nccl(scene: Scene) -> Found | None:
    """A rank waits for its GPU inside a collective, or in NCCL."""
    inside = in_nccl(scene)
    if inside is not None:
        return inside
    waits = waits_for_gpu(scene)
    return waits if waits is not None and scene.group == "collective" else None


def _busy_and_idle(scene: Scene) -> Found | None:
    """The GPUs are busy all the time at low power: a kernel of NCCL that waits."""
    gpus = gpus_of_the_job(scene)
    known = [g for g in gpus if g.busy is not None and g.power is not None and g.power_limit]
    waits = [g for g in known if _is_waiting(g)]
    if not waits or len(waits) < len(known):
        return None
    one = waits[0]
    watts = f"{one.most_power or 0:.0f} of {one.power_limit or 0:.0f} W"
    return Found(f"{len(waits)} GPUs are busy all the time at {watts}")


def _is_waiting(gpu: Gpu) -> bool:
    low = (gpu.most_power or 0.0) < _LOW_SHARE * (gpu.power_limit or 0.0)
    return (gpu.least_busy or 0.0) >= _BUSY_PERCENT and low


def _none_done_yet(scene: Scene) -> Found | None:
    """It is the group's first collective."""
    for facts in scene.ranks:
        for log in facts.collectives:
            real = [c for c in log.operations if c.kind not in ("new_group", "ddp", "fsdp")]
            if real and max(c.number for c in real) <= 1 and real[-1].done is not True:
                return Found(f"rank {facts.rank} has completed no collective yet")
    return None


def _opens_a_connection(scene: Scene) -> Found | None:
    """A connection to another rank is asked for and not answered (SYN_SENT)."""
    for look in scene.family[:1]:
        for socket in look.sockets:
            if socket.state == "SYN_SENT":
                return Found(f"{socket.peer} SYN_SENT", {"peer": socket.peer})
    return None


def _chosen_interface(scene: Scene) -> Found | None:
    """NCCL_SOCKET_IFNAME is not set, and the machine has interfaces that lead nowhere."""
    interfaces = scene.machine.interfaces
    virtual = [i for i in interfaces if i.startswith(("docker", "veth", "br-", "virbr", "cni"))]
    if not virtual or scene.environment.get("NCCL_SOCKET_IFNAME"):
        return None
    return Found(f"NCCL_SOCKET_IFNAME is not set, and there is {', '.join(virtual[:3])}")


def _peers_differ(scene: Scene) -> Found | None:
    """Ranks are in different operations."""
    last: dict[str, set[tuple[str, int]]] = {}
    for facts in scene.ranks:
        for log in facts.collectives[:1]:
            newest = {c.group: (c.kind, c.number) for c in log.operations}
            for group, what in newest.items():
                last.setdefault(group, set()).add(what)
    mixed = next((group for group, kinds in last.items() if len(kinds) > 1), None)
    return Found(f"the ranks' last operations of group {mixed} differ") if mixed else None


def _p2p_is_off(scene: Scene) -> Found | None:
    """P2P between GPUs is switched off already."""
    return Found("P2P is off") if scene.environment.get("NCCL_P2P_DISABLE") == "1" else None


def _all_meet(scene: Scene) -> Found | None:
    """All ranks of this node are there."""
    meeting = tuple(r for r, s in scene.situations.items() if s.waits_for_peers)
    if not meeting or len(meeting) < len(scene.job.local_ranks):
        return None
    return Found(f"{format_ranks(meeting)} are all there")


def _guesses_its_device(scene: Scene) -> Found | None:
    """Torch warned that it guesses the device of a barrier."""
    pattern = r"using GPU \d+[^\n]{0,20}to perform barrier as devices used by this process are"
    pattern += r"|Guessing device ID based on global rank"
    found = scene.wrote(pattern, scene.ranks)
    return None if found is None else Found(f"rank {found[0].rank} was warned that torch guesses")


def _in_a_barrier(scene: Scene) -> Found | None:
    """A rank waits in a barrier, or in the group's first collective."""
    frame = scene.frame(r"torch/distributed/distributed_c10d\.py", "barrier")
    return None if frame is None else Found(f"frame {format_frame(frame)}")


# ---- causes --------------------------------------------------------------------------------------

NCCL_CAUSES = (
    KnownCause(
        id="wrong-interface",
        title="NCCL chose a network interface over which the other ranks cannot be reached",
        signs=(
            need(makes_nccl, 0.5),
            need(_opens_a_connection, 0.6),
            also(_chosen_interface, 0.4),
        ),
        why="NCCL tells the others the address of an interface it chose itself; nothing answers at "
        "{peer}.",
        avoid=(
            "NCCL_SOCKET_IFNAME=<the interface to the other nodes>, on all nodes (^docker,veth "
            "leaves those out)",
            "NCCL_DEBUG=INFO says which one it chose (Bootstrap : Using ...)",
        ),
        references=("NVIDIA/nccl#913", "NVIDIA/nccl#367", "horovod/horovod#584"),
    ),
    KnownCause(
        id="nccl-init",
        title="NCCL does not get its communicator made: a rank is missing, or cannot be reached",
        signs=(
            need(makes_nccl, 0.6),
            also(_chosen_interface, 0.2),
            also(_none_done_yet, 0.1),
            unless(_opens_a_connection),
        ),
        why="NCCL makes its communicators in init_process_group or in the first collective; until "
        "all ranks have come and connected each waits there, unseen by torch's watchdog.",
        avoid=(
            "NCCL_DEBUG=INFO shows how far each rank came",
            "NCCL_SOCKET_IFNAME=<the interface to the other nodes> where there are several",
            "init_process_group(device_id=...) makes the communicator at once: it is clear where",
        ),
        references=("pytorch/pytorch#88103", "pytorch/pytorch#52916", "NVIDIA/nccl#913"),
    ),
    KnownCause(
        id="nccl-first-collective",
        title="GPUs do not get data from one another: P2P, ACS or IOMMU",
        signs=(
            need(meets_over_nccl, 0.35),
            need(_busy_and_idle, 0.45),
            also(_none_done_yet, 0.35),
            also(_all_meet, 0.1),
            unless(_peers_differ),
            unless(_p2p_is_off),
        ),
        why="All ranks are in the collective, the GPUs spin in NCCL's kernel at low power, and no "
        "data comes: PCIe access control (ACS) or an IOMMU redirects what GPUs send each other.",
        avoid=(
            "to find out: NCCL_P2P_DISABLE=1. It costs bandwidth: all data between GPUs then takes "
            "the way through host memory, with NVLink many times slower: no lasting remedy",
            "for good: ACS off on the PCIe bridges (setpci), the IOMMU off or passing (iommu=pt)",
            "another driver, where P2P is offered but broken (consumer GPUs)",
        ),
        references=(
            "NVIDIA/nccl#2079",
            "NVIDIA/nccl#257",
            "NVIDIA/nccl#631",
            "Lightning-AI/pytorch-lightning#19425",
        ),
    ),
    KnownCause(
        id="barrier-guessed-device",
        title="a barrier on a GPU that torch guessed",
        signs=(need(_guesses_its_device, 0.5), need(_in_a_barrier, 0.55)),
        why="Without a device of its own a rank's first barrier takes GPU number rank; where that "
        "is another's, two ranks wait on one GPU.",
        avoid=(
            "torch.cuda.set_device(LOCAL_RANK), or init_process_group(device_id=...), first",
            "barrier(device_ids=[LOCAL_RANK])",
        ),
        references=("ray-project/ray#42751", "pytorch/pytorch#124714", "verl-project/verl#1472"),
    ),
)
